"""What travels from the data to a trainer: named arrays, described beforehand by fields."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import UserError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of RGB in [0, 1]

Batch = dict[str, np.ndarray]  # every array has the batch as its first axis


@dataclass(frozen=True)
class Field:
    """One named array of a batch.

    shape is that of one row, without the batch axis. A field with mean and std holds uint8 pixels, channels last
    (..., H, W, 3); the trainer scales them to [0, 1], normalises them and puts channels first, on the device, so that
    only bytes travel. `missing` stands for a target that cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    missing: int = 0


LABEL = Field("label", (), "int64", missing=-1)  # of one class; -1 is none, so an unreadable sample counts as wrong


@dataclass(frozen=True)
class DropoutMask:
    """Random bits a net needs while it trains: a dropout mask, drawn with the sample and not inside a framework.

    Being a function of (seed, position), the mask is the same in every framework, for every number of ranks and after
    every resume. rate is the probability of a zero; the net divides by 1 - rate.
    """

    name: str
    shape: tuple[int, ...]
    rate: float

    @property
    def field(self) -> Field:
        return Field(self.name, self.shape, "uint8")

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(self.shape, dtype=np.float32) >= self.rate).astype(np.uint8)


def collate(rows: Sequence[dict[str, np.ndarray]], size: int) -> Batch:
    """Stack rows into arrays of `size` rows; missing rows repeat the last one and are marked 0 in `valid` (uint8).

    Raises UserError for rows of different shapes.
    """
    padded: list[dict[str, np.ndarray]] = list(rows) + [rows[-1]] * (size - len(rows))
    for name, array in rows[0].items():
        other = next((row[name].shape for row in rows if row[name].shape != array.shape), None)
        if other:
            raise UserError(
                f"samples whose {name} is of different sizes, {array.shape} and {other}, cannot share a "
                "batch; give train.eval_batch=1, or pictures of one size"
            )
    batch = {name: np.stack([row[name] for row in padded]) for name in rows[0]}
    batch["valid"] = (np.arange(size) < len(rows)).astype(np.uint8)
    return batch
