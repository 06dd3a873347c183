"""Parts of tools/estimate.py: the data where they are not at hand, and the memory of a forward and backward pass."""
