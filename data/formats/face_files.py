"""Faces in files, told by a list or by folders, and how a picture becomes an array.

Files and Records (data/formats/face_packs.py) are sources: by number a picture, encoded or as a path, and its label.
"""

import io
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

import cv2
import numpy as np

from data.errors import BadSample, UserError
from data.formats import images
from data.formats.lists import class_folders, read_folders

Encoded = Union[str, bytes]

cv2.setNumThreads(1)  # one sample per thread: the stream brings the parallelism


class Files:
    """Picture files. paths are relative to root; labels is int64 (n,)."""

    def __init__(self, root: str, paths: Sequence[bytes], labels: np.ndarray):
        # Arrays: every reader process gets a copy, and millions of small objects travel slowly.
        self.root, self.paths, self.labels = root, np.array(paths), labels

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self.paths[index]))

    def picture(self, index: int) -> str:
        return os.path.join(self.root, self.name(index))

    def label(self, index: int) -> int:
        return int(self.labels[index])

    def labelled(self, index: int) -> tuple[str, int]:
        return self.picture(index), self.label(index)

    def beyond(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the pictures whose labels are below `label`, and of the others: int64."""
        return np.flatnonzero(self.labels < label), np.flatnonzero(self.labels >= label)

    def describe(self) -> list[str]:
        """One line per picture, `path label size`, the size in bytes (-1 if missing)."""
        lines = []
        for index, label in enumerate(self.labels):
            try:
                size = os.stat(self.picture(index)).st_size
            except OSError:
                size = -1
            lines.append(f"{self.name(index)} {label} {size}")
        return lines


@contextmanager
def open_face(encoded: Encoded, size: int, resize: bool) -> Iterator[Any]:
    """A picture whose header is read: of (size, size), or of any size if it may be resized. Raises BadSample."""
    with images.open_image(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as image:
        if image.size != (size, size) and not resize:
            raise BadSample(
                f"{image.width} x {image.height} pixels, not {size} x {size}; faces should be aligned "
                "already, others are stretched to that size with -o data.resize=true"
            )
        yield image


def decode(encoded: Encoded, size: int, resize: bool) -> np.ndarray:
    """A picture as uint8 RGB (size, size, 3), a mark of rotation not obeyed. Raises BadSample."""
    with open_face(encoded, size, resize) as image:
        pixels = np.asarray(images.to_rgb(image))
    if pixels.shape[:2] == (size, size):
        return pixels
    shrinks = min(pixels.shape[:2]) > size  # where pixels would be skipped otherwise
    return cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def read_list(root: str, path: str) -> Files:
    """Lines `relative/path label`, of which there may be millions. Raises UserError naming file and line."""
    paths, labels = [], array("q")
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                words = (line.lstrip(b"\xef\xbb\xbf") if number == 1 else line).strip().rsplit(None, 1)
                if not words:
                    continue
                if len(words) < 2 or not words[1].isdigit() or len(words[1]) > 18:
                    raise UserError(
                        f"{path}:{number}: expected `relative/path label` with label an integer from 0, "
                        f"got {line[:80].decode(errors='replace').strip()!r}"
                    )
                paths.append(words[0])
                labels.append(int(words[1]))
    except OSError as error:
        raise UserError(f"{path}: cannot read this list ({error.strerror})") from None
    if not paths:
        raise UserError(
            f"{path}: the list is empty; a line reads `relative/path label`, the path relative to data.root"
        )
    return Files(root, paths, np.array(labels, np.int64))


def read_identities(root: str, below: str) -> tuple[Files, tuple[str, ...]]:
    """A folder per identity, <root>/<below>/<identity>/, and their names. Raises UserError."""
    names, place = class_folders(root, below), os.path.join(root, below)
    if not names:
        raise UserError(
            f"{place}: there is neither a pack train.rec, a list label.txt nor a folder per identity in "
            "here; put one there, or name what there is with -o data.train=NAME"
        )
    clips = read_folders(root, below, names, images.EXTENSIONS)
    labels = np.array([clip.label for clip in clips], np.int64)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(names)) == 0)
    if len(empty):
        raise UserError(
            f"{os.path.join(place, names[empty[0]])}: there is no picture in this folder (a file ending "
            f"in {', '.join(images.EXTENSIONS)}); fill or remove it"
        )
    return Files(root, [os.fsencode(clip.path) for clip in clips], labels), tuple(names)
