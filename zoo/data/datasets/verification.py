"""Face verification pairs: read from .bin files, listed in text files, or drawn from held-out identities."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data import sources
from zoo.data.audit import Inventory
from zoo.data.batch import LABEL, Field
from zoo.data.cache import LocalPath, source_path
from zoo.data.contents import digest_bytes
from zoo.data.dataset import Pending, PlannedSample
from zoo.data.datasets import common
from zoo.data.errors import BadSample, Option, UserError, similar_path
from zoo.data.formats import face_files, images
from zoo.data.formats.face_files import FaceFiles
from zoo.data.formats.face_packs import FacePack, read_bin
from zoo.data.formats.lists import check_inside, is_number, read_lines
from zoo.data.record import Item
from zoo.data.transforms.geometry import Geometry

MEAN = (0.5, 0.5, 0.5)
STANDARD_SIZE = 112  # pixels, of the images of all published verification sets
FOLDS = 10  # of the usual protocol; a set needs at least one pair per fold
SEED = 2026  # of drawn pairs
ATTEMPTS = 20  # draws per requested pair, because some pairs are drawn twice
HELD_OUT = "held_out"


class BinImages:
    """The encoded images of a .bin file, held in memory."""

    in_pack = False

    def __init__(self, path: str, encoded: Sequence[bytes], md5: str):
        # One array, because every worker process gets a copy and many small objects are slow to pickle.
        self.file, self.md5 = os.path.basename(path), md5
        self.offsets = np.cumsum([0] + [len(image) for image in encoded])
        self.content = np.frombuffer(b"".join(encoded), np.uint8)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, index: int) -> str:
        return f"{self.file} image {index}"

    def encoded(self, index: int) -> bytes:
        return self.content[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def size(self, index: int) -> int:
        return int(self.offsets[index + 1] - self.offsets[index])

    def digest(self, index: int) -> bytes:
        return digest_bytes(self.encoded(index))

    def items(self) -> list[Item]:
        """Return the file, whose md5 is known."""
        return [Item(self.file, str(len(self)), digest=bytes.fromhex(self.md5))]


class PairSet(NamedTuple):
    """Pairs of images of one source, in the order of their folds."""

    name: str
    source: BinImages | FaceFiles | FacePack
    pairs: np.ndarray  # int64 (P, 2), indices of images in the source
    same: np.ndarray  # int64 (P,), 1 where both images show the same person

    def item(self) -> Item:
        return Item(f"the pairs of {self.name}", hashlib.md5(self.pairs.tobytes() + self.same.tobytes()).hexdigest())


def open_sets(
    root: str, entries: Sequence[str], local: LocalPath = source_path, outside: bool = False
) -> tuple[PairSet, ...]:
    """Open verification sets by name.

    Args:
        entries: .bin files (the extension is optional) or text files of pairs, relative to root.
        local: gives the path to read an image from; .bin files are read once, where they are.
        outside: whether a list may name images that are not below its folder.
    """
    sets: dict[str, PairSet] = {}
    for entry in entries:
        path = find_set(root, entry)
        if path is None:
            raise UserError(
                f"data.verification: there is no {entry} in {root}; name .bin files or lists of pairs in this "
                "folder, or hold out identities of the training set with ",
                Option("data.verification", []),
                " (data.val_fraction)",
                similar_path(os.path.join(root, entry)),
            )
        pair_set = _read_bin_set(path) if path.endswith(".bin") else _read_pair_list(path, local, outside)
        if len(pair_set.same) < FOLDS:
            raise UserError(
                f"{path}: {len(pair_set.same)} pairs, but {FOLDS}-fold accuracy needs at least {FOLDS}; add pairs"
            )
        if pair_set.same.min() == pair_set.same.max():
            kind = "the same person" if pair_set.same[0] else "different persons"
            raise UserError(f"{path}: all pairs are of {kind}, so that any model is right; add pairs of the others")
        if pair_set.name in sets:
            raise UserError(
                f"data.verification: {entry}: there are two sets with the name {pair_set.name}; rename a file"
            )
        sets[pair_set.name] = pair_set
    return tuple(sets.values())


def sample_pairs(source: FaceFiles | FacePack, rows: np.ndarray, labels: np.ndarray, count: int) -> PairSet:
    """Draw up to `count` distinct pairs, alternately of the same and of different persons.

    Identities are drawn uniformly, then their images. The same rows always give the same pairs.

    Args:
        rows: Indices of the images in the source, int64 (n,).
        labels: Their identities, int64 (n,).
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    multiple, draws = np.flatnonzero(sizes > 1), ATTEMPTS * count  # identities with more than one image
    rng, same, different = np.random.default_rng(SEED), np.empty((0, 2), np.int64), np.empty((0, 2), np.int64)
    if len(multiple):
        identity = multiple[rng.integers(len(multiple), size=draws)]
        first, second = _draw_two(rng, sizes[identity])
        images_of_one = order[np.stack([starts[identity] + first, starts[identity] + second], 1)]
        same = _distinct(rows[images_of_one], count // 2)
    if len(sizes) > 1:
        identities = np.stack(_draw_two(rng, np.full(draws, len(sizes))), 1)
        different = _distinct(rows[order[starts[identities] + rng.integers(sizes[identities])]], count // 2)
    pairs_per_label = min(len(same), len(different))
    if 2 * pairs_per_label < FOLDS:
        raise UserError(
            f"the {len(sizes)} held-out identities give only {pairs_per_label} pairs of the same person and of "
            "different persons; add images of the same persons, raise data.val_fraction, or name verification sets "
            "with ",
            Option("data.verification", ["lfw.bin"]),
        )
    pairs = np.stack([same[:pairs_per_label], different[:pairs_per_label]], 1).reshape(-1, 2)
    return PairSet(HELD_OUT, source, pairs, np.tile(np.array([1, 0]), pairs_per_label))


class VerificationPairs:
    """The validation split: the pairs of all verification sets, concatenated.

    Fields: `image` uint8 (2, size, size, 3) RGB, `label` int64 (): 1 for the same person, 0 for different persons;
    `pair` int64 (): index of the pair.

    Attributes:
        sets: (name, index of the first pair, number of pairs) of every verification set.
    """

    views = 2
    notes: tuple[str, ...] = ()

    def __init__(self, settings: Any, pair_sets: Sequence[PairSet], classes: Sequence):
        self.settings, self.pair_sets, self.classes = settings, pair_sets, classes
        counts = [len(pair_set.same) for pair_set in pair_sets]
        self.offsets = np.cumsum([0] + counts)
        self.sets = tuple(
            (pair_set.name, int(first), count) for pair_set, first, count in zip(pair_sets, self.offsets, counts)
        )
        shape = (2, settings.size, settings.size, 3)
        self.fields = (Field("image", shape, "uint8", MEAN, settings.std), LABEL)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def protocol(self) -> common.Protocol:
        """The evaluation: the verification sets by name, and the side of the images where it is not 112."""
        names = "+".join(name for name, _, _ in self.sets)
        if names == HELD_OUT:  # drawn from the training set
            names = f"{common.root_name(self.settings)}-{names}"
        return common.Protocol(names, "" if self.settings.size == STANDARD_SIZE else f"@{self.settings.size}")

    def name(self, index: int) -> str:
        pair_set, number = self._locate(index)
        images = ", ".join(pair_set.source.name(image) for image in pair_set.pairs[number])
        return f"{pair_set.name} pair {number} ({images})"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode both images. Raises BadSample."""
        pair_set, number = self._locate(index)
        images = np.stack([self._decode(pair_set, image) for image in pair_set.pairs[number]])
        return {"image": images, "label": np.asarray(pair_set.same[number], np.int64)}

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read a pair, and leave its pixels to the loader. Raises BadSample."""
        pair_set, number = self._locate(index)
        files = [
            face_files.read_plain(pair_set.source.encoded(image), self.settings.size)
            for image in pair_set.pairs[number]
        ]
        plain = tuple(file for file in files if file is not None)
        if len(plain) < len(files):
            return {**self.sample(index, rng)}
        label = np.asarray(pair_set.same[number], np.int64)
        return {"image": Pending(plain, Geometry(), stacked=True), "label": label}

    def inventory(self, deep: bool) -> Inventory:
        """Return the images of all pairs, for checks; deep: whether packs are read."""
        images = [(pair_set.source, image) for pair_set in self.pair_sets for image in np.unique(pair_set.pairs)]

        def of_image(method: str) -> Callable[[int], Any]:
            return lambda index: getattr(images[index][0], method)(images[index][1])

        is_open = deep or not any(pair_set.source.in_pack for pair_set in self.pair_sets)
        size, digest = (of_image(name) if is_open else None for name in ("size", "digest"))
        return Inventory(len(images), of_image("name"), self.classes, size, digest)

    def _decode(self, pair_set: PairSet, image: int) -> np.ndarray:
        try:
            return face_files.decode(pair_set.source.encoded(image), self.settings.size, self.settings.resize)
        except BadSample as error:
            raise BadSample(f"{pair_set.source.name(image)}: {error}") from None

    def _locate(self, index: int) -> tuple[PairSet, int]:
        number = int(np.searchsorted(self.offsets, index, side="right")) - 1
        return self.pair_sets[number], index - int(self.offsets[number])


def unreadable(source: BinImages | FaceFiles | FacePack, index: int, settings: Any) -> str:
    """Return why an image cannot be opened, with its name; "" if it can."""
    try:
        face_files.open_face(source.encoded(index), settings.size, settings.resize)
    except BadSample as error:
        return f"{source.name(index)}: {error}"
    return ""


def check_all_readable(pair_set: PairSet, settings: Any) -> None:
    """Check that all images of a verification set can be opened."""
    for image in np.unique(pair_set.pairs):
        problem = unreadable(pair_set.source, image, settings)
        if problem:
            raise UserError(
                f"verification set {pair_set.name}: {problem}; fix it, or count unreadable pairs as wrong with ",
                Option("data.eval_bad", "wrong"),
            )


def find_set(root: str, entry: str) -> str | None:
    return common.first_existing(root, [entry, f"{entry}.bin"])


def _draw_two(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw two different numbers below each of the sizes, which are at least 2."""
    first = rng.integers(sizes)
    return first, (first + 1 + rng.integers(sizes - 1)) % sizes


def _distinct(pairs: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` distinct pairs in the order of their first occurrence; (b, a) equals (a, b)."""
    pairs = np.sort(pairs, axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    return pairs[np.sort(first)[:count]]


def _read_bin_set(path: str) -> PairSet:
    encoded, same, content = read_bin(path)
    source = BinImages(path, encoded, hashlib.md5(content).hexdigest())
    name = os.path.splitext(os.path.basename(path))[0]
    return PairSet(name, source, _consecutive_pairs(len(same)), np.array(same, np.int64))


def _read_pair_list(path: str, local: LocalPath, outside: bool) -> PairSet:
    """Read LFW's pairs.txt (`name 1 4`, `name 1 other 2`; images name/name_0001.jpg) or lines `path path 0|1`."""
    text = read_lines(path, "this list of pairs")
    lines = [(number, line.split("\t" if "\t" in line else None)) for number, line in text.items()]
    root, parse = os.path.dirname(path), _parse_paths
    if lines and len(lines[0][1]) < 3 and all(map(is_number, lines[0][1])):  # LFW: folds, pairs per fold
        count, parse = 2 * math.prod(int(word) for word in lines[0][1]), _parse_lfw
        lines = lines[1:]
        if len(lines) != count:
            raise UserError(
                f"{path}: {len(lines)} pairs, but line 1 promises {count}; the file is truncated, download it again"
            )
    names, same = [], []
    for number, words in lines:
        try:
            pair, label = parse(words)
            check_inside(path, pair, outside)
            names += [_find_image(root, name) for name in pair]
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}, got {' '.join(words)!r}") from None
        same.append(label)
    source = FaceFiles(root, [os.fsencode(name) for name in names], np.full(len(names), -1), local)
    stem = os.path.splitext(os.path.basename(path))[0]
    name = os.path.basename(os.path.dirname(os.path.abspath(path))) if stem == "pairs" else stem
    return PairSet(name, source, _consecutive_pairs(len(same)), np.array(same, np.int64))


def _parse_lfw(words: Sequence[str]) -> tuple[tuple[str, str], int]:
    """Return the two images of a line of LFW, without extension, and 1 for the same person."""
    same = len(words) == 3
    if same:
        words = (words[0], words[1], words[0], words[2])
    if len(words) != 4 or not (is_number(words[1]) and is_number(words[3])):
        raise ValueError("expected `name 1 4` or `name 1 other 2`")
    left, left_number, right, right_number = words
    return (f"{left}/{left}_{int(left_number):04d}", f"{right}/{right}_{int(right_number):04d}"), int(same)


def _parse_paths(words: Sequence[str]) -> tuple[tuple[str, str], int]:
    if len(words) != 3 or words[2] not in ("0", "1"):
        raise ValueError(
            "expected `path path 1` for the same person or `path path 0` for different persons, separated by tabs if "
            "a path contains spaces"
        )
    return (words[0], words[1]), int(words[2])


def _find_image(root: str, name: str) -> str:
    """Return a path relative to root, with the extension that the file has. Raises ValueError."""
    for extension in ("",) + images.EXTENSIONS:
        if sources.is_file(os.path.join(root, name + extension)):
            return name + extension
    path = os.path.join(root, name)
    raise ValueError(f"there is no image {path}{similar_path(path)}")


def _consecutive_pairs(count: int) -> np.ndarray:
    """Return the pairs (0, 1), (2, 3) ...: int64 (count, 2)."""
    return np.arange(2 * count).reshape(count, 2)
