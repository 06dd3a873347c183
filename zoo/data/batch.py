"""Batches, the interface between data and trainers: named arrays, described in advance by fields."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoo.data.errors import UserError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of RGB in [0, 1]
IGNORE_INDEX = 255  # label of pixels that belong to no class and are ignored

Batch = dict[str, np.ndarray]  # the first axis of every array is the batch


@dataclass(frozen=True)
class Field:
    """One named array of a batch.

    A field with mean and std holds uint8 pixels, channels last: (..., H, W, 3). The trainer scales them to [0, 1],
    normalizes them and moves channels first on the device, so that only bytes are copied there.

    Attributes:
        shape: Shape of one sample, without the batch axis.
        missing: Fill value of a sample that cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    missing: int = 0


LABEL = Field("label", (), "int64", missing=-1)  # a class; -1 is none of them, so an unreadable sample counts as wrong
SOFT_LABEL = "soft_label"


def soft_label(classes: int) -> Field:
    """Return the field of a distribution over classes, on which a classifier trains in place of LABEL."""
    return Field(SOFT_LABEL, (classes,), "float32")


@dataclass(frozen=True)
class DropoutMask:
    """A dropout mask, drawn together with the sample and not inside a framework.

    It is a function of (seed, position). So it is the same in every framework, for every world size and after every
    resume.

    Attributes:
        shape: Shape of one sample's mask, without the batch axis.
        rate: Probability of a zero; the model divides by 1 - rate.
    """

    name: str
    shape: tuple[int, ...]
    rate: float

    @property
    def field(self) -> Field:
        return Field(self.name, self.shape, "uint8")

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the mask of one sample: uint8, 1 where a value is kept."""
        return (rng.random(self.shape, dtype=np.float32) >= self.rate).astype(np.uint8)


def batch_bytes(fields: Sequence[Field], batch_size: int) -> int:
    return batch_size * sum(int(np.prod(field.shape)) * np.dtype(field.dtype).itemsize for field in fields)


def collate(samples: Sequence[dict[str, np.ndarray]], batch_size: int) -> Batch:
    """Stack samples into a batch of `batch_size`, padded with copies of the last sample.

    Returns:
        The arrays of the samples, and `valid` uint8 (batch_size,): 1 for samples, 0 for padding.
    """
    padded = list(samples) + [samples[-1]] * (batch_size - len(samples))
    for name in samples[0]:
        check_shapes(name, [sample[name].shape for sample in samples])
    batch = {
        name: np.stack([sample[name] for sample in padded], dtype=samples[0][name].dtype, casting="equiv")
        for name in samples[0]
    }
    batch["valid"] = (np.arange(batch_size) < len(samples)).astype(np.uint8)
    return batch


def check_shapes(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Check that the arrays of samples have one shape. Raises UserError."""
    different = next((shape for shape in shapes if shape != shapes[0]), None)
    if different:
        raise UserError(
            f"{name}: arrays of shape {shapes[0]} and {different} cannot share a batch; "
            "set train.eval_batch=1, or use images of one size"
        )
