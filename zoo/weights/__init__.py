"""Weights of other projects: file formats, key mapping, comparison with a model, published ImageNet weights."""
