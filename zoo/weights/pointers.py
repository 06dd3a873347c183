"""Folders of checkpoints by the names `last` and `best`: links, or files with a name where there are no links."""

import os
import re

STEP = re.compile(r"step-\d{8,}")
MAX_SIZE = 64  # bytes of a file with a name


def resolve(path: str) -> str:
    """Return the folder that a file names, as a link would lead to it; any other path as it is.

    Copies to file systems without links, and some archives, turn a link into a file with the name of its target.
    """
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_SIZE:
            return path
        with open(path, encoding="ascii") as file:
            name = file.read().strip()
    except (OSError, ValueError):
        return path
    folder = os.path.join(os.path.dirname(path), name)
    return folder if STEP.fullmatch(name) and os.path.isdir(folder) else path
