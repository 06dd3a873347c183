"""Batches whose images are still encoded, and what a device makes of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.batch import Batch, check_shapes, collate
from zoo.data.dataset import Pending, PlannedSample
from zoo.data.transforms.geometry import Geometry

AT_A_TIME = 2  # batches that are decoded at once
# Columns of a table of geometries, int32: a row for an image. Unused ones are 0.
KEY = slice(0, 8)  # box, size, antialias, window, canvas: whether there is one; fill
BOX = slice(8, 12)
SIZE = slice(12, 14)
WINDOW = slice(14, 18)
CANVAS = slice(18, 20)
FLIP = 20
COLUMNS = 21
SEPARATOR = "/"  # between the name of an array and that of its part in a packed batch; names of fields have none


class Failure(Exception):
    """DALI cannot decode some image of a batch."""


def table(geometries: Sequence[Geometry]) -> np.ndarray:
    """Return geometries as int32 (len(geometries), COLUMNS)."""
    rows = np.zeros((len(geometries), COLUMNS), np.int32)
    for row, geometry in zip(rows, geometries):
        box, size, window = geometry.box, geometry.size, geometry.window
        row[:4] = box is not None, size is not None, size is not None and geometry.antialias, window is not None
        row[FLIP] = geometry.flip
        row[BOX], row[SIZE], row[WINDOW] = box or 0, size or 0, window or 0
        if geometry.canvas:
            given = (window and window[2:]) or size or (box and box[2:])
            assert given, "a canvas is for an image whose size the geometry gives"
            row[4:8] = True, *geometry.fill
            row[CANVAS] = np.maximum(geometry.canvas, given)
    return rows


class Packed(NamedTuple):
    """An array of images, uint8 RGB (*leading, H, W, 3), some or all of which are still encoded.

    A packed batch has its five arrays, by names that begin with that of the array, in place of it: all pass from a
    worker like those of any batch.

    Attributes:
        content: the encoded files, one after the other: uint8 (bytes,).
        ends: where in `content` each file ends: int64 (files,).
        geometry: table of the files' geometries.
        decoded: the other images: uint8 (images, H, W, 3); (0, 0, 0, 3) if there are none.
        order: for every row of the array, the index of its image, first among the files and then among the decoded
            images: int64 (*leading,). Rows of padding show an image that another row has.
    """

    content: np.ndarray
    ends: np.ndarray
    geometry: np.ndarray
    decoded: np.ndarray
    order: np.ndarray

    def files(self) -> list[np.ndarray]:
        """Return the encoded files, views of `content`."""
        return [self.content[begin:end] for begin, end in zip([0, *self.ends.tolist()], self.ends.tolist())]


def pack(samples: Sequence[PlannedSample], batch_size: int) -> Batch:
    """Stack samples into a batch as `collate` does, with the arrays packed in which something is pending."""
    names = [name for name in samples[0] if any(isinstance(sample[name], Pending) for sample in samples)]
    batch = collate(
        [{name: value for name, value in sample.items() if name not in names} for sample in samples],  # type: ignore[misc]
        batch_size,
    )
    for name in names:
        packed = _pack(name, [sample[name] for sample in samples], batch_size)
        batch.update((f"{name}{SEPARATOR}{part}", array) for part, array in packed._asdict().items())
    return batch


def unpack(batch: Batch) -> tuple[Batch, dict[str, Packed]]:
    """Return the ordinary arrays of a batch, and the packed ones by name."""
    arrays = {name: array for name, array in batch.items() if SEPARATOR not in name}
    names = dict.fromkeys(name.partition(SEPARATOR)[0] for name in batch if SEPARATOR in name)
    packed = {name: Packed(*(batch[f"{name}{SEPARATOR}{part}"] for part in Packed._fields)) for name in names}
    return arrays, packed


def _pack(name: str, values: Sequence[Pending | np.ndarray], batch_size: int) -> Packed:
    stacked = any(isinstance(value, Pending) and value.stacked for value in values)
    files = [file for value in values if isinstance(value, Pending) for file in value.files]
    geometries = [value.geometry for value in values if isinstance(value, Pending) for _ in value.files]
    images = [image for value in values if not isinstance(value, Pending) for image in (value if stacked else [value])]
    check_shapes(name, [image.shape for image in images])
    at_file, at_image, order = 0, len(files), []
    for value in values:
        if isinstance(value, Pending):
            order.append(range(at_file, at_file + len(value.files)))
            at_file += len(value.files)
        else:
            order.append(range(at_image, at_image + (len(value) if stacked else 1)))
            at_image += len(order[-1])
    order += [order[-1]] * (batch_size - len(values))
    content = np.frombuffer(b"".join(files), np.uint8)
    ends = np.cumsum([len(file) for file in files])
    decoded = np.stack(images) if images else np.zeros((0, 0, 0, 3), np.uint8)
    rows = np.array(order, np.int64)
    return Packed(content, ends, table(geometries), decoded, rows if stacked else rows[:, 0])


class DeviceImages(NamedTuple):
    """An array of images, uint8 (*order.shape, H, W, 3), in parts that are on the device or have to be copied there.

    Attributes:
        decoded: DALI's tensors (images, H, W, 3), complete, in memory that nobody else writes to. They support DLPack.
        rest: images on the host (images, H, W, 3), perhaps none.
        order: index of each row's image among those of all parts, one part after the other.
    """

    decoded: tuple[Any, ...]
    rest: np.ndarray
    order: np.ndarray

    @property
    def is_whole(self) -> bool:
        order = self.order.ravel()
        return len(self.decoded) == 1 and not len(self.rest) and np.array_equal(order, np.arange(len(order)))

    def on_host(self) -> np.ndarray:
        parts = [np.array(part.as_cpu()) for part in self.decoded]
        return np.concatenate([*parts, self.rest] if len(self.rest) else parts)[self.order]
