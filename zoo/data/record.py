"""Record of what a data set holds, a few bytes per sample, and its comparison with a later one.

A record names the samples that were added, removed or changed since a run began; the checksum alone shows only
that some were.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from zoo.data import contents
from zoo.data.contents import Content

LEVEL = 1  # of zlib: names of one folder after the other shrink well at any level
MAX_TEXT = 1 << 13  # characters of the name and the label of an item, on average
SHOWN = 5  # names of each kind in a message
WEIGHT = 0x9E3779B97F4A7C15  # odd, so that the order of an item's files counts

Names = Sequence[str] | range


class Item(NamedTuple):
    """A sample, or a file of many samples, as the checksum sees it.

    Attributes:
        name: the same for the same sample wherever the data set lies.
        label: what the data set says of it apart from the contents of its files: its class, mask or length.
        digest: of its contents, where they are known without `files`.
    """

    name: str
    label: str
    files: tuple[Content, ...] = ()
    digest: bytes = bytes(4)


class SplitRecord(NamedTuple):
    """Record of a split.

    Attributes:
        classes: their names, or how many there are where they have numbers only.
        text: names and labels of the items in order, compressed.
        digests: uint32 (items,), of their contents.
    """

    samples: int
    classes: tuple[str, ...] | int
    text: bytes
    digests: np.ndarray


class DataRecord(NamedTuple):
    """Record of a data set.

    Attributes:
        checksum: of the whole set, as hexadecimal digits.
        method: how contents were read: `sampled` or `full`.
    """

    checksum: str
    method: str
    train: SplitRecord
    val: SplitRecord


class SplitChange(NamedTuple):
    """Differences between two records of a split: names of items, in the order of the data set.

    Attributes:
        samples: number before and now.
        relabeled: items whose label changed, with both labels.
        mended: those of them that may change, because they were unreadable.
        moved: the first item that has another place, where the items are the same.
    """

    samples: tuple[int, int]
    classes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    relabeled: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    moved: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of items by kind of change."""
        kinds = ("added", "removed", "relabeled", "changed", "mended")
        return {kind: len(getattr(self, kind)) for kind in kinds}


def build(
    train: tuple[int, Names, Iterable[Item]], val: tuple[int, Names, Iterable[Item]], root: str, method: str
) -> DataRecord:
    """Read the files of a data set and return its record.

    Args:
        train, val: number of samples, classes and items of each split.
    """
    texts = _Text(), _Text()

    def files() -> Iterator[Content]:
        for text, (_, _, items) in zip(texts, (train, val)):
            for item in items:
                text.add(item)
                yield from item.files

    table = contents.digests(files(), root, method == "full")
    split_records, first = [], 0
    checksum = hashlib.md5(contents.VERSION + table.tobytes())
    for text, (samples, classes, _) in zip(texts, (train, val)):
        last = first + sum(text.files)
        names = len(classes) if isinstance(classes, range) else tuple(classes)
        checksum.update(f"{samples} {names} {text.md5.hexdigest()}".encode(errors="surrogateescape"))
        split_records.append(SplitRecord(samples, names, text.finish(), _item_digests(text, table[first:last])))
        first = last
    return DataRecord(checksum.hexdigest(), method, *split_records)


def without_items(samples: int, classes: int) -> SplitRecord:
    return SplitRecord(samples, classes, zlib.compress(b""), np.zeros(0, np.uint32))


def items(split: SplitRecord) -> list[tuple[str, str, int]]:
    """Return name, label and digest of the items of a split. Raises ValueError."""
    count = len(split.digests)
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(split.text, max(count * MAX_TEXT, 1))
    except zlib.error as error:
        raise ValueError(str(error)) from None
    words = text.decode(errors="surrogateescape").split("\0")
    if not decompressor.eof or len(words) != 2 * count + 1:
        raise ValueError(f"names of {len(words) // 2} items, and digests of {count}")
    return list(zip(words[:-1:2], words[1::2], split.digests.tolist()))


def compare(before: SplitRecord, now: SplitRecord, may_change: Callable[[str], bool]) -> SplitChange:
    """Compare two records of a split, of the same method.

    Args:
        may_change: whether an item may have other contents, by its name.
    """
    old, new = items(before), items(now)
    old_by_key, new_by_key = _by_key(old), _by_key(new)
    relabeled, changed, mended = list[str](), list[str](), list[str]()
    for key, (name, label, digest) in old_by_key.items():
        other = new_by_key.get(key)
        if other is None:
            continue
        if label != other[1]:
            relabeled.append(f"{name} ({label} -> {other[1]})")
        elif digest != other[2]:
            (mended if may_change(name) else changed).append(name)
    added = tuple(item[0] for key, item in new_by_key.items() if key not in old_by_key)
    removed = tuple(item[0] for key, item in old_by_key.items() if key not in new_by_key)
    moved = next((b[0] for a, b in zip(old, new) if a[0] != b[0]), None) if not added and not removed else None
    return SplitChange(
        (before.samples, now.samples),
        tuple(_class_changes(before.classes, now.classes)),
        added,
        removed,
        tuple(relabeled),
        tuple(changed),
        tuple(mended),
        moved,
    )


def explain(title: str, change: SplitChange) -> list[str]:
    """Return a line for each kind of change of a split, with the first SHOWN names. title: of the split."""
    before, now = change.samples
    lines = [f"{title}: {before} samples, now {now}"] if before != now else []
    lines += [f"{title}: {text}" for text in change.classes]
    kinds = {
        "added": change.added,
        "removed": change.removed,
        "with another label": change.relabeled,
        "with other contents": change.changed,
    }
    lines += [f"{title}: {len(names)} {kind}: {shorten(names)}" for kind, names in kinds.items() if names]
    return lines + ([f"{title}: the order differs, first at {change.moved}"] if change.moved is not None else [])


def shorten(names: Sequence[str]) -> str:
    """Return the first SHOWN names, and that there are more."""
    return ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")


class _Text:
    """Names and labels of items, compressed as they come, and how many files each item has."""

    def __init__(self) -> None:
        self.files: list[int] = []
        self.known: dict[int, bytes] = {}  # digests of items without files, by index
        self.md5 = hashlib.md5()  # of names, labels and known digests
        self._compressor, self._blocks = zlib.compressobj(LEVEL), list[bytes]()

    def add(self, item: Item) -> None:
        if not item.files:
            self.known[len(self.files)] = item.digest
            self.md5.update(item.digest)
        self.files.append(len(item.files))
        text = f"{item.name}\0{item.label}\0".encode(errors="surrogateescape")
        self.md5.update(text)
        self._blocks.append(self._compressor.compress(text))

    def finish(self) -> bytes:
        return b"".join([*self._blocks, self._compressor.flush()])


def _item_digests(text: _Text, table: np.ndarray) -> np.ndarray:
    """Return uint32 digests of items, of those of their files: table uint64 (files, 2)."""
    counts = np.array(text.files, np.int64)
    sums = np.zeros(len(counts), np.uint64)
    if len(table):
        starts = np.cumsum(counts) - counts
        place = np.arange(len(table)) - np.repeat(starts, counts)  # of a file in its item
        weighted = table[:, 0] * (np.uint64(WEIGHT) + np.uint64(2) * place.astype(np.uint64))
        filled = counts > 0
        sums[filled] = np.add.reduceat(weighted, starts[filled])
    digests = (sums >> np.uint64(32)).astype(np.uint32)
    for index, digest in text.known.items():
        digests[index] = int.from_bytes(digest[:4], "little")
    return digests


def _by_key(found: list[tuple[str, str, int]]) -> dict[tuple[str, int], tuple[str, str, int]]:
    """Return items by name and number among those of the same name."""
    seen: Counter[str] = Counter()
    by_key = {}
    for item in found:
        by_key[item[0], seen[item[0]]] = item
        seen[item[0]] += 1
    return by_key


def _class_changes(before: tuple[str, ...] | int, now: tuple[str, ...] | int) -> Iterator[str]:
    old, new = (value if isinstance(value, int) else len(value) for value in (before, now))
    if old != new:
        yield f"{old} classes, now {new}"
    if isinstance(before, int) or isinstance(now, int):
        return
    compared = ((before, frozenset(now)), (now, frozenset(before)))
    lost, gained = ([name for name in names if name not in others] for names, others in compared)
    if lost:
        yield f"classes that are gone: {shorten(lost)}"
    if gained:
        yield f"new classes: {shorten(gained)}"
    if not lost and not gained and before != now:
        place = next(label for label, (a, b) in enumerate(zip(before, now)) if a != b)
        yield f"the order of the classes differs: {place} was {before[place]}, now it is {now[place]}"
