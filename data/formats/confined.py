"""Paths of lists, which come with a data set: they stay below its folder, unless the recipe trusts them."""

import os
from collections.abc import Iterable

from zoo.data.errors import UserError

KEY = "data.allow_outside_root"


def check(path: str, names: Iterable[str], allowed: bool) -> None:
    """Check the paths that a list names. Links within the folder may lead anywhere.

    Args:
        path: of the list.
        names: the paths.
        allowed: whether they may lead anywhere, too.

    Raises:
        UserError: a path is absolute or goes up by `..`.
    """
    if allowed:
        return
    for name in names:
        if name.startswith("/") or (os.pardir in name and os.pardir in name.split("/")):
            raise UserError(
                f"{path}: {name} may lead out of data.root; use paths below it, or, if you trust this list, let them "
                f"pass with -o {KEY}=true"
            )
