"""Where this package lies, its source files, and the command line that starts `zoo` in a new process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout, or site-packages
MAIN = str(PACKAGE / "__main__.py")


def command(*arguments: str) -> list[str]:
    """Return the command line of `zoo ARGUMENTS` in this Python."""
    return [sys.executable, MAIN, *arguments]


def source_files() -> Iterator[Path]:
    """Yield all Python files of the package, also those behind the links zoo/data and zoo/bench."""
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(".py"))
