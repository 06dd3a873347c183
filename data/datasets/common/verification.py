"""Pairs of faces to verify: read from .bin files, told by text files, or drawn from identities held out of training."""

import hashlib
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.errors import UserError
from data.formats import images
from data.formats.face_bin import read_bin
from data.formats.face_files import FaceFiles
from data.formats.face_packs import FacePack

FOLDS = 10  # of the usual protocol, so fewer pairs are no set
SEED = 2026  # of drawn pairs
ATTEMPTS = 20  # draws per wanted pair, since some come out twice
HELD_OUT = "held_out"


class Packed:
    """The pictures of a .bin file, held in memory."""

    def __init__(self, path: str, items: Sequence[bytes], digest: str):
        # One array: every reader process gets a copy, and many small objects travel slowly.
        self.file, self.digest = os.path.basename(path), digest
        self.ends = np.cumsum([0] + [len(item) for item in items])
        self.content = np.frombuffer(b"".join(items), np.uint8)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def name(self, index: int) -> str:
        return f"{self.file} picture {index}"

    def encoded(self, index: int) -> bytes:
        return self.content[self.ends[index] : self.ends[index + 1]].tobytes()

    def describe(self) -> list[str]:
        """Name and md5 of the file."""
        return [f"{self.file} {self.digest}"]


class PairSet(NamedTuple):
    """Pairs of pictures of one source, in the order of their folds."""

    name: str
    source: Packed | FaceFiles | FacePack
    pairs: np.ndarray  # int64 (P, 2), numbers of pictures
    same: np.ndarray  # int64 (P,), 1 where both show one person


def open_sets(root: str, entries: Sequence[str]) -> tuple[PairSet, ...]:
    """The verification sets of these names: .bin files, or text files of pairs; the ending .bin may be left out.

    Raises UserError naming file and line.
    """
    sets: dict[str, PairSet] = {}
    for entry in entries:
        path = next(
            (path for path in (os.path.join(root, entry), os.path.join(root, f"{entry}.bin")) if os.path.isfile(path)),
            None,
        )
        if path is None:
            raise UserError(
                f"data.verification: there is no {entry} in {root}; name .bin files or lists of pairs "
                "there, or none at all: then identities are held out of the training set (data.val_fraction)"
            )
        found = _packed(path) if path.endswith(".bin") else _listed(path)
        if len(found.same) < FOLDS:
            raise UserError(f"{path}: {len(found.same)} pairs, but an accuracy of {FOLDS} folds needs {FOLDS} at least")
        if found.name in sets:
            raise UserError(f"data.verification: {entry}: there are two sets called {found.name}; rename a file")
        sets[found.name] = found
    return tuple(sets.values())


def draw(source: FaceFiles | FacePack, rows: np.ndarray, labels: np.ndarray, count: int) -> PairSet:
    """About `count` different pairs, same and different persons in turn, of the pictures `rows` of a source.

    Identities are drawn uniformly, then their pictures; always the same for the same pictures. Raises UserError if
    there are too few.
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    several, draws = np.flatnonzero(sizes > 1), ATTEMPTS * count
    rng, same, different = np.random.default_rng(SEED), np.empty((0, 2), np.int64), np.empty((0, 2), np.int64)
    if len(several):
        who = several[rng.integers(len(several), size=draws)]
        first, second = _two(rng, sizes[who])
        same = _distinct(rows[order[np.stack([starts[who] + first, starts[who] + second], 1)]], count // 2)
    if len(sizes) > 1:
        who = np.stack(_two(rng, np.full(draws, len(sizes))), 1)
        different = _distinct(rows[order[starts[who] + rng.integers(sizes[who])]], count // 2)
    each = min(len(same), len(different))
    if 2 * each < FOLDS:
        raise UserError(
            f"the {len(sizes)} identities that are held out of training give only {each} pairs of one "
            "person and of two; raise data.val_fraction, or name verification sets with "
            "-o data.verification=[lfw.bin]"
        )
    pairs = np.stack([same[:each], different[:each]], 1).reshape(-1, 2)
    return PairSet(HELD_OUT, source, pairs, np.tile(np.array([1, 0]), each))


def _two(rng: np.random.Generator, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two different numbers below each of the sizes, which are at least 2."""
    first = rng.integers(sizes)
    return first, (first + 1 + rng.integers(sizes - 1)) % sizes


def _distinct(pairs: np.ndarray, count: int) -> np.ndarray:
    """The first `count` different pairs, in the order in which they come; (b, a) is (a, b)."""
    pairs = np.sort(pairs, axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    return pairs[np.sort(first)[:count]]


def digest(one: PairSet) -> str:
    """md5 of which pictures are paired, and how."""
    return hashlib.md5(one.pairs.tobytes() + one.same.tobytes()).hexdigest()


def _packed(path: str) -> PairSet:
    items, same, content = read_bin(path)
    source = Packed(path, items, hashlib.md5(content).hexdigest())
    name = os.path.splitext(os.path.basename(path))[0]
    return PairSet(name, source, _two_by_two(len(same)), np.array(same, np.int64))


def _listed(path: str) -> PairSet:
    """LFW's pairs.txt (`name 1 4`, `name 1 other 2`, pictures name/name_0001.jpg) or lines `path path 0|1`."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [
                (number, line.strip().split("\t" if "\t" in line else None))
                for number, line in enumerate(file, 1)
                if line.strip()
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read these pairs: {error}") from None
    root, read = os.path.dirname(path), _told
    if lines and len(lines[0][1]) < 3 and all(word.isdecimal() for word in lines[0][1]):
        told, read = 2 * math.prod(int(word) for word in lines[0][1]), _lfw
        lines = lines[1:]
        if len(lines) != told:
            raise UserError(f"{path}: {len(lines)} pairs, but line 1 tells of {told}; the file is cut, fetch it again")
    names, same = [], []
    for number, words in lines:
        try:
            pair, answer = read(words)
            names += [_found(root, name) for name in pair]
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}, got {' '.join(words)!r}") from None
        same.append(answer)
    source = FaceFiles(root, [os.fsencode(name) for name in names], np.full(len(names), -1))
    stem = os.path.splitext(os.path.basename(path))[0]
    name = os.path.basename(os.path.dirname(os.path.abspath(path))) if stem == "pairs" else stem
    return PairSet(name, source, _two_by_two(len(same)), np.array(same, np.int64))


def _lfw(words: Sequence[str]) -> tuple[tuple[str, str], int]:
    """The two pictures of a line of LFW, without their ending, and 1 for one person."""
    same = len(words) == 3
    if same:
        words = (words[0], words[1], words[0], words[2])
    if len(words) != 4 or not (words[1].isdecimal() and words[3].isdecimal()):
        raise ValueError("expected `name 1 4` or `name 1 other 2`")
    one, first, other, second = words
    return (f"{one}/{one}_{int(first):04d}", f"{other}/{other}_{int(second):04d}"), int(same)


def _told(words: Sequence[str]) -> tuple[tuple[str, str], int]:
    if len(words) != 3 or words[2] not in ("0", "1"):
        raise ValueError("expected `path path 1` for one person, 0 for two, with tabs between if a path holds blanks")
    return (words[0], words[1]), int(words[2])


def _found(root: str, name: str) -> str:
    """A path relative to root, with the ending that the file has. Raises ValueError."""
    for ending in ("",) + images.EXTENSIONS:
        if os.path.isfile(os.path.join(root, name + ending)):
            return name + ending
    raise ValueError(f"there is no picture {os.path.join(root, name)}")


def _two_by_two(count: int) -> np.ndarray:
    return np.arange(2 * count).reshape(count, 2)
