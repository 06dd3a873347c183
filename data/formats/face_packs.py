"""Faces in packs: the records of a .rec, which of them are pictures, and of how many identities."""

import hashlib
import os

import numpy as np

from data.errors import BadSample, UserError
from data.formats.recordio import Content, RecordFile, read_index, unpack

EXACT = 1 << 24  # whole numbers up to here are exact as 32-bit floats
NEAR = 64  # how far record 0 may be off for that reason, in a pack of 2**30 pictures


class Records:
    """Pictures of a .rec with its .idx. `identities`: how many it counts, None if it does not. Raises UserError.

    If record 0 holds no picture, its first number is the key behind the last picture, and identity records follow;
    else every record is a picture.
    """

    def __init__(self, path: str):
        self.pack, self.index = RecordFile(path), f"{os.path.splitext(path)[0]}.idx"
        self.keys, self.offsets = read_index(self.index, self.pack)
        self.identities: int | None = None
        first = self._known(0)
        if not first.body and len(first.labels) > 1:
            end = self._end(first.labels[0])
            self.identities = len(self.keys) - end
            self.keys, self.offsets = self.keys[1:end], self.offsets[1:end]
        if not len(self.keys):
            raise UserError(f"{path}: there is no picture in this pack")

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        return f"{os.path.basename(self.pack.path)} key {self.keys[index]}"

    def exact(self) -> bool:
        """Whether labels are 64-bit floats, which hold any number of identities. Raises UserError."""
        return self._known(0).width == 8

    def content(self, index: int) -> Content:
        """Raises BadSample."""
        return unpack(self.pack.read(int(self.offsets[index])))

    def picture(self, index: int) -> bytes:
        return self.content(index).body

    def label(self, index: int) -> int:
        return self.labelled(index)[1]

    def labelled(self, index: int) -> tuple[bytes, int]:
        """Raises BadSample."""
        content = self.content(index)
        return content.body, whole(content.labels[0])

    def beyond(self, label: int) -> tuple[range, np.ndarray]:
        """As of Files, for packs whose labels rise. Raises UserError."""
        cut, end = 0, len(self)
        try:
            while cut < end:
                middle = (cut + end) // 2
                cut, end = (middle + 1, end) if self.label(middle) < label else (cut, middle)
            held = [self.label(index) for index in range(cut, len(self))]
        except BadSample as error:
            raise UserError(f"{error}; name verification sets with -o data.verification=[lfw.bin]") from None
        if held != sorted(held) or (held and held[0] < label):
            raise UserError(
                f"{self.pack.path}: the pictures are not in the order of their identities, so none can be "
                "held out; name verification sets with -o data.verification=[lfw.bin]"
            )
        return range(cut), np.arange(cut, len(self))

    def describe(self) -> list[str]:
        """Size of the pack and md5 of its index: a picture of equal length in the place of another goes unseen."""
        index = hashlib.md5(np.stack([self.keys, self.offsets]).tobytes()).hexdigest()
        return [f"{os.path.basename(self.pack.path)} {self.pack.size} {index}"]

    def _known(self, index: int) -> Content:
        try:
            return self.content(index)
        except BadSample as error:
            raise UserError(
                f"{self.pack.path}: the record of key {self.keys[index]} cannot be read: {error}; copy the pack again"
            ) from None

    def _end(self, told: float) -> int:
        """Where the identity records begin: near the key `told`, which a 32-bit float may have rounded."""
        end = start = int(np.searchsorted(self.keys, told))
        while end < len(self.keys) and self._known(end).body and end - start <= NEAR:
            end += 1
        while end > 1 and not self._known(end - 1).body and start - end <= NEAR:
            end -= 1
        if abs(end - start) > NEAR:
            raise UserError(
                f"{self.pack.path}: record 0 says that pictures end before key {told:.0f}, which they do "
                f"not; {self.index} belongs to another pack, or the pack is of a kind not known here"
            )
        return end


def whole(label: float) -> int:
    """A label as the number of an identity. Raises BadSample."""
    if not 0 <= label < 2**53 or label != int(label):
        raise BadSample(f"its label {label} is no number of an identity")
    return int(label)


def read_property(pack: str) -> int | None:
    """How many identities the file `property` beside a pack tells, its one line being `identities,height,width`."""
    path = os.path.join(os.path.dirname(pack), "property")
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        words = file.read().strip().split(",")
    if not words[0].isdecimal() or int(words[0]) < 1:
        raise UserError(
            f"{path}: expected `identities,height,width`, got {','.join(words)[:60]!r}; mend it, or remove "
            "it and say -o data.num_classes=N"
        )
    return int(words[0])
