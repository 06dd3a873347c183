"""Output files that the user names, checked before the work that fills them."""

import os

from zoo.data.errors import UserError


def require_new(path: str | None, option: str) -> None:
    """Check that a file can be made.

    Args:
        path: of the file; None if it is not asked for.
        option: that names it, for messages.

    Raises:
        UserError: it exists, or its folder does not or cannot be written to.
    """
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if os.path.lexists(path):
        raise UserError(f"{option} {path}: this file exists; name a new one")
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no such folder; make it first")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: the folder cannot be written to; name another one")
