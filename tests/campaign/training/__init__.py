"""Runs of train.py that campaigns disturb, and their comparison with undisturbed ones."""
