"""Updates in PyTorch: a file for each specification in zoo/optim, of the same name, with a function `update`."""
