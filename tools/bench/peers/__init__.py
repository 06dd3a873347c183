"""Comparison of the input pipelines with bare loops of the libraries, DALI, and the loaders of other projects.

Other projects' code is imported from the user's own copies; none of it is here.
"""
