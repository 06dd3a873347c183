"""Weights that come from elsewhere: reading, renaming, comparing with what a net needs, published ImageNet files."""
