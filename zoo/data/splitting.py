"""Choice, by their contents, of the samples that are held out where a data set has no validation split.

Names, order, seed, framework and machine do not matter, so a file stays on its side when it is renamed or moved, and
copies of a file are on the same side.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from zoo.data import contents
from zoo.data.contents import Content


def content_keys(files: Iterable[Sequence[Content]], root: str) -> np.ndarray:
    """Return a number for each sample, equal for samples whose files have equal contents: uint64 (n,)."""
    files = list(files)
    table = contents.digests(chain.from_iterable(files), root)  # of blocks of large files, whatever data.checksum is
    ends = np.cumsum([len(of_sample) for of_sample in files])
    parts = (table[end - len(of_sample) : end].tobytes() for end, of_sample in zip(ends, files))
    digests = b"".join(hashlib.blake2b(part, digest_size=8).digest() for part in parts)
    return np.frombuffer(digests, np.uint64)


def hold_out(keys: np.ndarray, labels: Sequence[int] | np.ndarray, fraction: float) -> np.ndarray:
    """Choose samples of every class: those with the smallest keys.

    Copies count as one sample. A class of two samples or more has one on either side; a single one stays in training.
    Where copies have different labels, they are on the side that the smaller label gives them.

    Args:
        keys: uint64 (n,), as `content_keys` returns them.

    Returns:
        bool (n,), true for samples that are held out.
    """
    keys_of = defaultdict[int, set[int]](set)
    for key, label in zip(keys.tolist(), labels):
        keys_of[label].add(key)
    is_held: dict[int, bool] = {}
    for _, own in sorted(keys_of.items()):
        count = min(max(round(fraction * len(own)), 1), len(own) - 1)
        count -= sum(is_held.get(key, False) for key in own)
        free = sorted(key for key in own if key not in is_held)
        is_held.update((key, place < count) for place, key in enumerate(free))
    return np.array([is_held[key] for key in keys.tolist()], bool)


def group_keys(keys: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return a key for each group of samples: the smallest of its samples; groups that share a copy have the same.

    Args:
        keys: uint64 (n,), as `content_keys` returns them.
        groups: of the samples, int64 (n,).
        count: number of groups. One without samples has the largest key that there is.
    """
    names, copies = np.unique(keys, return_inverse=True)
    of_sample, last = copies, None
    while last is None or not np.array_equal(of_sample, last):
        last = of_sample
        for members, size in ((groups, count), (copies, len(names))):
            least = np.full(size, len(names))
            np.minimum.at(least, members, of_sample)
            of_sample = least[members]
    of_group = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    of_group[groups] = names[of_sample]
    return of_group
