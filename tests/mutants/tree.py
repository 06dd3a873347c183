"""Copies of the repository, in which faults are planted."""

import compileall
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode

from tests.helpers.paths import ROOT

FOLDERS = ("configs", "data", "tests", "tools", "zoo")
FILES = ("pyproject.toml", "train.py")
LINKED = "golden"  # the large folder, of tests
IGNORED = shutil.ignore_patterns("__pycache__", LINKED)


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Yield a temporary folder with the source files of the repository."""
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        tree = Path(folder)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, tree / name, ignore=IGNORED)
        for name in FILES:
            shutil.copy(ROOT / name, tree / name)
        (tree / "tests" / LINKED).symlink_to(ROOT / "tests" / LINKED)
        # By hash, because a fault may leave size and time of its file as they were.
        compileall.compile_dir(tree, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        yield tree


def digest() -> str:
    """Return a digest of all source files that a test may depend on."""
    result = hashlib.sha256()
    paths = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".yaml")]
    for path in sorted(paths):
        result.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return result.hexdigest()[:16]
