"""Numbers in the arguments of programs and in variables of the environment."""

import re

NATURAL = re.compile("[0-9]{1,9}")


def natural(text: str) -> int | None:
    """Return the whole number that a text is, of up to nine digits; None if it is none."""
    return int(text) if NATURAL.fullmatch(text) else None
