"""Batches whose images are still encoded, as plain arrays: what a worker passes on for decoding on the device.

An array of images becomes five arrays, whose names begin with its name: the files one after the other and where each
ends, a table of their geometries, the images that the data set has decoded itself, and which image goes to which row.
All are arrays like those of any batch, so large ones pass through shared memory.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.data.batch import Batch, check_shapes, collate
from zoo.data.dataset import Pending, PlannedSample
from zoo.data.loaders import dali_graph

SEPARATOR = "/"  # between the name of an array and that of its part; names of fields have none


class Packed(NamedTuple):
    """An array of images, uint8 RGB (*leading, H, W, 3), some or all of which are still encoded.

    Attributes:
        content: the encoded files, one after the other: uint8 (bytes,).
        ends: where in `content` each file ends: int64 (files,).
        geometry: table of the files' geometries (data/loaders/dali_graph.py).
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
    """Stack samples into a batch as `collate` does, with the arrays packed in which something is pending.

    Raises:
        UserError: samples have different shapes.
    """
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
    return Packed(content, ends, dali_graph.table(geometries), decoded, rows if stacked else rows[:, 0])
