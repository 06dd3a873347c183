"""Proof that a recipe is the same computation in several frameworks; zoo compare is its program."""
