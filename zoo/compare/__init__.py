"""Proof that a recipe is the same computation in several frameworks; tools/compare.py is its program."""
