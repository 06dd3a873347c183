"""Losses of segmentation models; see zoo/losses/__init__.py."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, NotNegative, Range, SettingError, check

Share = Annotated[float, Range(low=0, high=1, open_high=True)]
Side = Annotated[tuple[int, int], Range(low=1, ordered=False)]
IGNORE_INDEX = 255  # label of pixels that have no loss and are not evaluated


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `task:` of a segmentation model."""

    task: ClassVar[str] = "segment"

    aux_weight: Annotated[NotNegative, Doc("Weight of the auxiliary head's loss.")] = 0.4
    window: Annotated[
        Side | None, Doc("Height and width of the sliding windows of an evaluation; null: the whole image.")
    ] = None
    stride: Annotated[
        Side | None, Doc("Vertical and horizontal distance of the windows; null: two thirds of them, rounded up.")
    ] = None
    flip: Annotated[bool, Doc("Evaluate each image and its mirror image.")] = False

    def __post_init__(self):
        check(self)
        if self.stride is not None and (
            self.window is None or self.stride[0] > self.window[0] or self.stride[1] > self.window[1]
        ):
            raise SettingError("stride", "needs task.window and must not be larger than it")

    @property
    def equal_counts(self) -> bool:
        return False

    def auxiliary(self) -> "Settings":
        """Return the loss of auxiliary logits, which counts the same items."""
        return self

    def count(self, ops: Any, labels: Any, dtype: Any) -> Any:
        """Return the number of items that the mean loss is taken over: images with a label, unless a loss says else."""
        return labelled_images(ops, labels, dtype).sum()

    def total(self, ops: Any, logits: Any, labels: Any) -> Any:
        """Return the sum of the losses of logits (N, K, H, W) and labels (N, H, W)."""
        raise NotImplementedError


def labelled_images(ops: Any, labels: Any, dtype: Any) -> Any:
    """Return 1 for an image with a label and else 0: (N,)."""
    return any_in_rows(ops, ops.astype(labels != IGNORE_INDEX, dtype).reshape((labels.shape[0], -1)))


def any_in_rows(ops: Any, x: Any) -> Any:
    """Return 1 for a row of zeros and ones that has a one, and else 0: (N, P) -> (N,)."""
    return ops.clip(x.sum(1), 0, 1)


def count_pixels(ops: Any, labels: Any, average: str, dtype: Any) -> Any:
    """Return the number of labelled pixels, or of all: task.average."""
    return math.prod(labels.shape) if average == "all" else ops.astype(labels != IGNORE_INDEX, dtype).sum()
