"""Face images in files, from a list or a folder per identity, and their decoding.

FaceFiles and FacePack (data/formats/face_packs.py) are sources: by index, an image, as encoded bytes or a path, and
its label. `in_pack` tells whether labels and sizes lie within a pack, whose records must be read for them.
"""

import os
from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from zoo.data import cache, sources
from zoo.data.contents import Content, digest_file
from zoo.data.errors import BadSample, Option, UserError, parsing, similar_path
from zoo.data.extras import cv2
from zoo.data.formats import images, regular
from zoo.data.formats.lists import check_widths, class_folders, read_folders
from zoo.data.record import Item

EncodedFace = str | bytes  # a path, or the content of an image file

MAX_LABEL_DIGITS = 18  # fits into int64
REMEDY = ("name another one with ", Option("data.train", "FILE"))
MAX_QUOTED = 80  # bytes of a malformed line in a message


class FaceFiles:
    """Face images in files.

    Args:
        root: folder that the paths are relative to.
        labels: int64 (n,).
        local: gives the path to read an image from.
    """

    in_pack = False

    def __init__(
        self, root: str, paths: Sequence[bytes], labels: np.ndarray, local: cache.LocalPath = cache.source_path
    ):
        # Arrays: every worker process gets a copy, and millions of small objects are slow to transfer.
        self.root = root
        self.paths = np.array(paths)
        self.labels = labels
        self.local = local

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        """Return the path of an image, relative to the root."""
        return os.fsdecode(bytes(self.paths[index]))

    def encoded(self, index: int) -> str:
        """Return the path to read an image from."""
        return self.local(os.path.join(self.root, self.name(index)))

    def label(self, index: int) -> int:
        return int(self.labels[index])

    def encoded_and_label(self, index: int) -> tuple[str, int]:
        """Return the path and the identity of an image."""
        return self.encoded(index), self.label(index)

    def split_by_label(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the images whose labels are below `label`, and of the others: int64."""
        return np.flatnonzero(self.labels < label), np.flatnonzero(self.labels >= label)

    def size(self, index: int) -> int:
        """Return the bytes of an image file, -1 if it is missing."""
        return regular.size(os.path.join(self.root, self.name(index)))

    def digest(self, index: int) -> bytes:
        return digest_file(Content(os.path.join(self.root, self.name(index))))

    def all_labels(self) -> np.ndarray:
        """Return the identities of all images: int64 (n,)."""
        return self.labels

    def items(self) -> Iterator[Item]:
        for index, label in enumerate(self.labels.tolist()):
            name = self.name(index)
            yield Item(name, str(label), (Content(os.path.join(self.root, name)),))


def open_face(encoded: EncodedFace, size: int, resize: bool) -> images.EncodedImage:
    """Read the header of an image, which must be (size, size) unless it may be resized. Raises BadSample."""
    image = images.parse(images.read_content(encoded) if isinstance(encoded, str) else encoded)
    _check_size(*image.stored, size, resize)
    return image


def decode(encoded: EncodedFace, size: int, resize: bool) -> np.ndarray:
    """Decode an image as stored, whatever its EXIF orientation. Raises BadSample.

    Args:
        size: side of the result in pixels.
        resize: stretch images of another size; without it they are bad samples.

    Returns:
        uint8 RGB (size, size, 3).
    """
    return fit(images.decode_stored(open_face(encoded, size, resize)), size, resize)


def fit(pixels: np.ndarray, size: int, resize: bool) -> np.ndarray:
    """Return a decoded image, uint8 (H, W, 3), as (size, size, 3). Raises BadSample as `decode`."""
    height, width = pixels.shape[:2]
    _check_size(width, height, size, resize)
    if (height, width) == (size, size):
        return pixels
    shrinks = min(pixels.shape[:2]) > size  # bilinear would skip pixels
    return cv2.resize(pixels, (size, size), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def read_plain(encoded: EncodedFace, size: int) -> bytes | None:
    """Return an ordinary JPEG file of the right size that is stored upright, None for another. Raises BadSample."""
    image = open_face(encoded, size, resize=True)
    return image.content if image.is_jpeg and image.is_ordinary and image.stored == (size, size) else None


def _check_size(width: int, height: int, size: int, resize: bool) -> None:
    if (width, height) != (size, size) and not resize:
        raise BadSample(
            f"{width} x {height} pixels, not {size} x {size}; faces should be aligned already, others are stretched to "
            "that size with data.resize=true"
        )


def read_list(root: str, path: str, local: cache.LocalPath = cache.source_path) -> FaceFiles:
    """Read lines `relative/path label`, of which there may be millions. Raises UserError naming file and line."""
    paths, labels = [], array("q")
    similar = "" if sources.exists(path) else similar_path(path)
    with parsing(f"{path}: cannot read this list", *REMEDY, similar), regular.open_file(path, limit=None) as file:
        for number, line in enumerate(file, 1):
            words = (line.lstrip(b"\xef\xbb\xbf") if number == 1 else line).strip().rsplit(None, 1)
            if not words:
                continue
            if len(words) < 2 or not words[1].isdigit() or len(words[1]) > MAX_LABEL_DIGITS or b"\0" in line:
                raise UserError(
                    f"{path}:{number}: expected `relative/path label` with label an integer from 0, "
                    f"got {line[:MAX_QUOTED].decode(errors='replace').strip()!r}"
                )
            paths.append(words[0])
            labels.append(int(words[1]))
    check_widths(path, paths)
    if not paths:
        raise UserError(
            f"{path}: the list is empty; a line reads `relative/path label`, the path relative to data.root"
        )
    if len(set(paths)) < len(paths):
        _check_labels(path, paths, labels)
    return FaceFiles(root, paths, np.array(labels, np.int64), local)


def _check_labels(path: str, paths: Sequence[bytes], labels: Sequence[int]) -> None:
    """Raise UserError if a list gives an image two labels."""
    first: dict[bytes, int] = {}
    for name, label in zip(paths, labels):
        if first.setdefault(name, label) != label:
            raise UserError(f"{path}: {os.fsdecode(name)} has the labels {first[name]} and {label}; remove one")


def read_identities(
    root: str, subfolder: str, local: cache.LocalPath = cache.source_path, allow_empty: bool = False
) -> tuple[FaceFiles, tuple[str, ...]]:
    """List the images of a folder per identity, <root>/<subfolder>/<identity>/.

    Args:
        allow_empty: whether a folder may hold no image.

    Returns:
        The images, and the names of the identities by label.
    """
    names, folder = class_folders(root, subfolder), os.path.join(root, subfolder)
    if not names:
        raise UserError(
            f"{folder}: found neither a pack train.rec, a list label.txt nor a folder per identity; "
            "put one there, or name the file or folder with ",
            Option("data.train", "NAME"),
        )
    entries = read_folders(root, subfolder, names, images.EXTENSIONS)
    similar = "" if subfolder else similar_path(os.path.join(root, "train"))
    if similar and all(entry.path.count("/") > 1 for entry in entries):  # root/<folder>/<identity>/, of another name
        raise UserError(
            f"{root}: there is no folder train{similar}; without it, a folder per identity holds its images itself"
        )
    labels = np.array([entry.label for entry in entries], np.int64)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(names)) == 0)
    if len(empty) and not allow_empty:
        raise UserError(
            f"{os.path.join(folder, names[empty[0]])}: there is no image in this folder (a file ending "
            f"in {', '.join(images.EXTENSIONS)}); fill or remove it, or let it pass with ",
            Option("data.allow_missing_classes", True),
        )
    return FaceFiles(root, [os.fsencode(entry.path) for entry in entries], labels, local), tuple(names)
