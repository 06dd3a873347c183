"""Checks of the verification sets of faces: every image of the .bin files beside the training set is decoded."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from zoo.data import host
from zoo.data.errors import BadSample, UserError
from zoo.data.formats.face_bin import read_bin
from zoo.data.packs import inspection
from zoo.data.preparing import official
from zoo.data.preparing.listing import Missing

SPLIT = "verification"  # in the list of unreadable files


class CheckedSet(NamedTuple):
    """A verification set.

    Attributes:
        summary: Its name and numbers for the report.
        unreadable: Its images that cannot be decoded, and the reasons; of a set that cannot be read, the file.
    """

    summary: dict[str, Any]
    unreadable: list[tuple[Missing, str]]


def check_all(root: str) -> Iterator[CheckedSet]:
    """Check the .bin files in a folder, by name."""
    for name in sorted(os.listdir(root)):
        if name.endswith(".bin") and os.path.isfile(os.path.join(root, name)):
            yield _check(root, name)


def _check(root: str, name: str) -> CheckedSet:
    path = os.path.join(root, name)
    try:
        images, same, _ = read_bin(path)
    except UserError as error:
        reason = str(error).removeprefix(f"{path}: ")
        return CheckedSet(_summary(name, [], Counter(), 1), [(Missing(SPLIT, name, -1), reason)])
    with ThreadPoolExecutor(len(host.cores())) as pool:
        results = list(pool.map(_size_or_problem, images))
    unreadable = [
        (Missing(SPLIT, f"{name} image {index} of pair {index // 2}", -1), problem)
        for index, (_, problem) in enumerate(results)
        if problem
    ]
    sizes = Counter(size for size, problem in results if not problem)
    return CheckedSet(_summary(name, same, sizes, len(unreadable)), unreadable)


def _summary(name: str, same: list[bool], sizes: Counter[str], unreadable: int) -> dict[str, Any]:
    return {
        "name": name,
        "pairs": len(same),
        "published_pairs": official.VERIFICATION_PAIRS.get(name),
        "same": sum(same),
        "images_by_size": dict(sorted(sizes.items())),
        "unreadable": unreadable,
    }


def _size_or_problem(content: bytes) -> tuple[str, str]:
    try:
        image = inspection.image_properties(content)
    except BadSample as error:
        return "", str(error)
    return f"{image.width} x {image.height}", ""
