"""Helpers of data sets that read files: the root folder, default files in it, file sizes and checksums."""

import hashlib
import os
from collections.abc import Sequence
from typing import Protocol

from data.errors import UserError


class FileSplit(Protocol):
    """A split that can list its files."""

    def describe_files(self) -> list[str]:
        """Return one line per sample with its paths, label and file sizes."""


def require_root(root: str, files: str, layout: str, demo: str) -> None:
    """Check that the folder of a data set exists.

    Args:
        files: What belongs there, such as `your images`.
        layout: The accepted folder layouts, in indented lines.
        demo: Recipe that needs no data, such as `resnet50_demo`.

    Raises:
        UserError: There is no such folder.
    """
    if os.path.isdir(root):
        return
    raise UserError(
        f"no data: there is no folder {root} (absolute path {os.path.abspath(root)})\n"
        f"  put {files} there, or name another folder with -o data.root=FOLDER; it holds\n{layout}\n"
        f"  no data yet? the demo generates its own: python train.py -c configs/{demo}.yaml --amp"
    )


def first_existing(root: str, names: Sequence[str]) -> str | None:
    """Return the path of the first of these files that exists in root."""
    return next((path for path in (os.path.join(root, name) for name in names) if os.path.isfile(path)), None)


def file_size(path: str) -> int:
    """Return the size of a file in bytes, -1 if it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def checksum(train: FileSplit, val: FileSplit) -> str:
    """Return an md5 over path, label and size of every sample: it changes when a file is replaced or missing."""
    digest = hashlib.md5()
    for split in (train, val):
        digest.update("\n".join(split.describe_files() + ["", ""]).encode(errors="surrogateescape"))
    return digest.hexdigest()
