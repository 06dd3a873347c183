"""Types of options of programs: argparse prints their errors."""

import argparse


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)
