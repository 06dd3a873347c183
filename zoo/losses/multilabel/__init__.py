"""Losses of classifiers of images with any number of classes; see zoo/losses/__init__.py."""
