"""Layers, losses and optimizers in numpy, with the options in which frameworks and ports of models differ."""
