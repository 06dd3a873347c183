"""Faces in insightface's files: packs in RecordIO files, and verification sets in .bin files."""

import hashlib
import io
import os
from contextlib import suppress
from typing import Any

import numpy as np

from zoo.data import sources
from zoo.data.contents import Content, digest_file
from zoo.data.errors import BadSample, Option, UserError, parsing
from zoo.data.formats import regular, safe_pickle
from zoo.data.formats.lists import is_number
from zoo.data.formats.recordio import ImageRecord, RecordFile, read_index, spans, unpack_image
from zoo.data.record import Item

MAX_FLOAT32_LABEL = 1 << 24  # 32-bit floats represent all integers up to here
MAX_LABEL = 1 << 53  # and 64-bit floats up to here
MAX_KEY_ERROR = 64  # of the key in record 0, a rounded 32-bit float, in a pack of 2**30 images
MAX_BIN_BYTES = 2 << 30  # of a verification set; the published ones have less than a tenth of it
BIN_REMEDY = "download it again, or write the pairs into a text file with lines `path path 0|1`"
VERIFICATION_REMEDY = ("name verification sets with ", Option("data.verification", ["lfw.bin"]))


class FacePack:
    """Face images of a .rec file with its .idx file.

    If record 0 holds no image, its first label is the key after the last image, and identity records follow there;
    otherwise every record is an image. `identities` is the number of identity records, None if there are none.
    """

    in_pack = True

    def __init__(self, path: str):
        self.pack, self.index = RecordFile(path), f"{os.path.splitext(path)[0]}.idx"
        self.keys, self.offsets = read_index(self.index, self.pack)
        self._spans = spans(self.offsets, self.pack.size)
        self.identities: int | None = None
        first = self._required_record(0)
        if not first.encoded and len(first.labels) > 1:
            end = self._find_end_of_images(first.labels[0])
            self.identities = len(self.keys) - end
            self.keys, self.offsets, self._spans = self.keys[1:end], self.offsets[1:end], self._spans[1:end]
        if not len(self.keys):
            raise UserError(
                f"{path}: there is no image in this pack; name another one with ", Option("data.train", "FILE")
            )

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        """Return file and key of an image, for messages."""
        return f"{os.path.basename(self.pack.path)} key {self.keys[index]}"

    def has_exact_labels(self) -> bool:
        """Return whether labels are 64-bit floats, exact for any number of identities. Raises UserError."""
        return self._required_record(0).label_bytes == 8

    def record(self, index: int) -> ImageRecord:
        """Read a record. Raises BadSample."""
        offset, span = int(self.offsets[index]), int(self._spans[index])
        return unpack_image(self.pack.read(offset, span, offset + span))

    def encoded(self, index: int) -> bytes:
        """Read an image, still encoded. Raises BadSample."""
        return self.record(index).encoded

    def label(self, index: int) -> int:
        """Read the identity of an image. Raises BadSample."""
        return self.encoded_and_label(index)[1]

    def encoded_and_label(self, index: int) -> tuple[bytes, int]:
        """Read an image, still encoded, and its identity. Raises BadSample."""
        record = self.record(index)
        return record.encoded, _integer_label(record.labels[0])

    def split_by_label(self, label: int) -> tuple[range, np.ndarray]:
        """Return the indices of the images whose labels are below `label`, and of the others."""
        start, end = 0, len(self)
        try:
            while start < end:
                middle = (start + end) // 2
                start, end = (middle + 1, end) if self.label(middle) < label else (start, middle)
            labels = [self.label(index) for index in range(start, len(self))]
        except BadSample as error:
            raise UserError(f"{self.pack.path}: a record cannot be read: ", error, "; ", *VERIFICATION_REMEDY) from None
        if labels != sorted(labels) or (labels and labels[0] < label):
            raise UserError(
                f"{self.pack.path}: the images are not in the order of their identities, so none can be held out; ",
                *VERIFICATION_REMEDY,
            )
        return range(start), np.arange(start, len(self))

    def size(self, index: int) -> int:
        """Read the bytes of an image, -1 if it cannot be read."""
        try:
            return len(self.encoded(index))
        except BadSample:
            return -1

    def digest(self, index: int) -> bytes:
        return digest_file(Content(self.pack.path, int(self.offsets[index])))

    def all_labels(self) -> np.ndarray:
        """Read the identities of all images: int64 (n,), -1 for one that cannot be read."""
        labels = np.full(len(self), -1, np.int64)
        for index in range(len(self)):
            with suppress(BadSample):
                labels[index] = self.label(index)
        return labels

    def items(self) -> list[Item]:
        """Return the pack as one file, whose records are small, with its size and the md5 of its index."""
        index = hashlib.md5(np.stack([self.keys, self.offsets]).tobytes()).hexdigest()
        return [Item(os.path.basename(self.pack.path), f"{self.pack.size} {index}", (Content(self.pack.path),))]

    def _required_record(self, index: int) -> ImageRecord:
        """Read a record without which the pack cannot be used. Raises UserError."""
        try:
            return self.record(index)
        except BadSample as error:
            raise UserError(
                f"{self.pack.path}: the record of key {self.keys[index]} cannot be read: {error}; copy the pack again"
            ) from None

    def _find_end_of_images(self, key: float) -> int:
        """Return the position of the first identity record, near `key`, which a 32-bit float may have rounded."""
        end = start = int(np.searchsorted(self.keys, key))
        while end < len(self.keys) and self._required_record(end).encoded and end - start <= MAX_KEY_ERROR:
            end += 1
        while end > 1 and not self._required_record(end - 1).encoded and start - end <= MAX_KEY_ERROR:
            end -= 1
        if abs(end - start) > MAX_KEY_ERROR:
            raise UserError(
                f"{self.pack.path}: according to record 0 the images end before key {key:.0f}, but they do not; "
                f"{self.index} belongs to another pack, or this format of packs is not supported"
            )
        return end


def read_property(pack: str) -> int | None:
    """Read the number of identities from the file `property` beside a pack, one line `identities,height,width`.

    Returns:
        The number, or None if there is no such file.
    """
    path = os.path.join(os.path.dirname(pack), "property")
    if not sources.is_file(path):
        return None
    with parsing(f"{path}: cannot read it", "remove it and pass ", Option("data.num_classes", "N")):
        words = regular.read(path).decode(errors="replace").strip().split(",")
    if not is_number(words[0]) or int(words[0]) < 1:
        raise UserError(
            f"{path}: expected `identities,height,width`, got {','.join(words)[:60]!r}; fix it, or remove it and pass ",
            Option("data.num_classes", "N"),
        )
    return int(words[0])


def read_bin(path: str) -> tuple[list[bytes], list[bool], bytes]:
    """Read a verification set without running code from its pickle.

    Returns:
        The 2P encoded images, of which 2i and 2i + 1 are pair i; for each of the P pairs, whether both images show
        the same person; and the content of the file.
    """
    with parsing(f"{path}: cannot read this verification set", BIN_REMEDY):
        content = regular.read(path, MAX_BIN_BYTES)
    problem = f"{path}: refused: it is damaged, or holds more than images, which would mean running code from it"
    with parsing(problem, BIN_REMEDY):  # encoding: strings of Python 2 are bytes
        loaded = safe_pickle.load(io.BytesIO(content), dtypes=("u1",), encoding="bytes")
    if not isinstance(loaded, (tuple, list)) or [type(part) for part in loaded] != [list, list]:
        raise UserError(f"{path}: not a verification set, which is a list of images and a list of flags; {BIN_REMEDY}")
    items, flags = loaded
    if len(items) != 2 * len(flags) or not flags:
        raise UserError(f"{path}: {len(items)} images for {len(flags)} pairs; {BIN_REMEDY}")
    for pair, flag in enumerate(flags):
        if type(flag) not in (bool, int) or flag not in (0, 1):
            raise UserError(f"{path}: the flag of pair {pair} is neither true nor false; {BIN_REMEDY}")
    images: list[Any] = [item.content if isinstance(item, safe_pickle.Array) else item for item in items]
    for index, image in enumerate(images):
        if not isinstance(image, bytes) or not image:
            raise UserError(f"{path}: image {index} (of pair {index // 2}) is not an encoded image; {BIN_REMEDY}")
    return images, [bool(flag) for flag in flags], content


def _integer_label(label: float) -> int:
    """Convert a label to the index of an identity. Raises BadSample."""
    if not 0 <= label < MAX_LABEL or label != int(label):
        raise BadSample(f"its label {label} is not the index of an identity")
    return int(label)
