"""The folder of files that all runs of a user share, such as downloaded weights."""

import os


def home(*names: str) -> str:
    """Return a path below $ZOO_HOME, by default `vision-zoo` in the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.environ.get("ZOO_HOME") or os.path.join(caches, "vision-zoo"), *names)
