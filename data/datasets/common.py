"""Parts that data sets share: the root folder, default files in it, the record of the set, and its protocol id."""

import os
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zoo.data import contents, record
from zoo.data.contents import Content
from zoo.data.errors import UserError, similar_path
from zoo.data.packs.prepared import PreparedSplit
from zoo.data.record import DataRecord, Item


class FileSplit(typing.Protocol):
    """A split that can list its files.

    Attributes:
        settings: of the data set, with `root` and `checksum`.
        classes: names, or a range where there are numbers only.
    """

    settings: Any
    classes: Any

    def __len__(self) -> int: ...

    def describe_files(self) -> list[str]:
        """Return one line per sample with its paths, label and file sizes."""

    def items(self) -> Iterable[Item]:
        """Return the samples in their order, with the files and records whose contents make them.

        Of a clip in single frames, these are the first, the middle and the last frame.
        """


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


def given_or_first(root: str, key: str, given: str | None, names: Sequence[str]) -> str | None:
    """Return the path of a list that the recipe names, or else of the first of these files that exists in root.

    A given path is relative to the current folder, or to root if there is no such file. key: of the recipe.

    Raises:
        UserError: there is no such file in either.
    """
    if given is None:
        return first_existing(root, names)
    in_root = os.path.join(root, given)
    for path in (given, in_root):
        if os.path.isfile(path):
            return path
    if os.path.exists(given):  # a folder or a pipe, which whoever reads it refuses
        return given
    similar = similar_path(in_root) or similar_path(given)
    raise UserError(f"{key}: there is no file {given}, neither in the current folder nor in {root}{similar}")


def file_functions(
    path: Callable[[int], str], prepared: PreparedSplit | None
) -> tuple[Callable[[int], int], Callable[[int], bytes]]:
    """Return the functions `size` and `digest` of an Inventory. path: of the file of a sample that is not prepared."""
    if prepared is None:
        return lambda index: file_size(path(index)), lambda index: contents.digest_file(Content(path(index)))
    sizes = prepared.bytes
    return lambda index: int(sizes[index]), lambda index: contents.digest_file(prepared.first_content(index))


def file_size(path: str) -> int:
    """Return the size of a file in bytes, -1 if it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def describe(train: FileSplit, val: FileSplit, method: str | None = None) -> DataRecord:
    """Return the record of a data set, whose checksum is an md5 over path, label, size and contents of all files.

    It changes when a file is replaced, missing or overwritten. With data.checksum=sampled, which reads blocks of large
    files, a change within one of them may go unseen.

    Args:
        train, val: the splits.
        method: `sampled` or `full`; default data.checksum.
    """
    lines = (line for split in (train, val) for line in [*split.describe_files(), "", ""])
    first, second = ((len(split), split.classes, split.items()) for split in (train, val))
    return record.build(lines, first, second, train.settings.root, method or train.settings.checksum)


class Protocol(NamedTuple):
    """A data set's part of a protocol id, which a task completes (zoo.tasks.Task.protocol).

    The filters of a resize and the normalization belong to the model and are not part of it.

    Attributes:
        name: of the set whose validation split is evaluated, such as k400 or lfw+cfp_fp.
        views: what the model sees of a sample: frames, clips, crops, sizes and scales, such as 8x1x1@224, 224-of-256
            or 1024x2048.
    """

    name: str
    views: str


def set_name(settings: Any, num_classes: int, official: Mapping[int, str]) -> str:
    """Return the name of a data set: data.set, else that of a well-known set with as many classes, else of the folder.

    Args:
        settings: of the data set, with `set` and `root`.
        num_classes: of the data that was found there.
        official: names of well-known sets by their number of classes.
    """
    return settings.set or official.get(num_classes) or root_name(settings)


def root_name(settings: Any) -> str:
    """Return the name of the folder of a data set, as one word."""
    return re.sub(r"[\s/]+", "_", os.path.basename(os.path.abspath(settings.root)))
