"""Validation files that are training files too.

By default, files of the same name and size are compared, a bounded number of them; with `deep`, all files of the same
size. Only equal contents count, so names such as 00001.jpg in every folder raise no alarm.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.data.audit.inventory import Inventory

NAMES = 2_000_000  # files of each split whose names are compared
SIZES = 20_000  # files of each split whose sizes are asked for, because the other split has the name too
CONTENTS = 2_000  # training files that are read, because a validation file has their name and size


class Copies(NamedTuple):
    """Pairs (training file, validation file) of equal content, by name, and what was left out."""

    pairs: list[tuple[str, str]]
    limits: list[str]


def find(train: Inventory, val: Inventory, deep: bool = False) -> Copies:
    """Find validation files that are training files too.

    Args:
        train, val: the splits.
        deep: whether names may differ, and all files are looked at.
    """
    if train.size is None or val.size is None or train.digest is None or val.digest is None:
        return Copies([], [])
    limits: list[str] = []
    left: Sequence[int] = range(train.samples)
    right: Sequence[int] = range(val.samples)
    if not deep:
        left, right = _same_names(train, val, limits)
        left = _limit(left, SIZES, "sizes", "train", limits)
        right = _limit(right, SIZES, "sizes", "val", limits)
    of_size: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # validation files by name and size
    for index in right:
        of_size["" if deep else _base_name(val, index), val.size(index)].append(index)
    suspects = []
    for index in left:
        key = "" if deep else _base_name(train, index), train.size(index)
        if key[1] > 0 and key in of_size:
            suspects.append((index, key))
    if not deep:
        suspects = [suspects[place] for place in _limit(range(len(suspects)), CONTENTS, "contents", "train", limits)]
    pairs, digests = list[tuple[str, str]](), dict[int, bytes]()
    for index, key in suspects:
        content = train.digest(index)
        for other in of_size[key]:
            digests[other] = digests.get(other) or val.digest(other)
            if digests[other] == content:
                pairs.append((train.name(index), val.name(other)))
    return Copies(pairs, limits)


def spread(count: int, limit: int) -> Sequence[int]:
    """Return all numbers below count, or `limit` of them that are evenly spread."""
    return range(count) if count <= limit else np.linspace(0, count - 1, limit).round().astype(int).tolist()


def _same_names(train: Inventory, val: Inventory, limits: list[str]) -> tuple[list[int], list[int]]:
    """Return the files of both splits whose name without folders occurs in both."""
    looked_at = [
        _limit(range(inventory.samples), NAMES, "names", split, limits)
        for split, inventory in (("train", train), ("val", val))
    ]
    names = {_base_name(val, index) for index in looked_at[1]}
    left = [index for index in looked_at[0] if _base_name(train, index) in names]
    names = {_base_name(train, index) for index in left}
    return left, [index for index in looked_at[1] if _base_name(val, index) in names]


def _limit(indices: Sequence[int], limit: int, what: str, split: str, limits: list[str]) -> Sequence[int]:
    """Return the indices, or as many as allowed, and then say so in `limits`."""
    if len(indices) > limit:
        limits.append(f"the {what} of {limit} of {len(indices)} {split} files")
    return [indices[place] for place in spread(len(indices), limit)]


def _base_name(inventory: Inventory, index: int) -> str:
    return inventory.name(index).rpartition("/")[2]
