"""Semantic segmentation: class maps by sliding windows, mean IoU; the losses are in zoo/losses/segment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.losses import loss_of, with_loss

if TYPE_CHECKING:  # zoo.data.stream imports Grain
    from zoo.data.stream import Dataset

PRIMARY = "miou"
IGNORE_INDEX = 255  # label of pixels that have no loss and are not evaluated


@dataclass(frozen=True)
class Keys:
    """The task's own keys in the `task:` section."""

    aux_weight: float = 0.4  # of the auxiliary head's loss
    window: tuple[int, int] | None = None  # evaluate by sliding windows of this height and width
    stride: tuple[int, int] | None = None  # from window to window; default two thirds of it, rounded up
    flip: bool = False  # evaluate each image and its mirror image

    def __post_init__(self):
        if self.aux_weight < 0:
            raise ValueError("aux_weight: must not be negative")
        for key in ("window", "stride"):
            if getattr(self, key) is not None and min(getattr(self, key)) < 1:
                raise ValueError(f"{key}: height and width must be at least 1")
        if self.stride is not None and (
            self.window is None or self.stride[0] > self.window[0] or self.stride[1] > self.window[1]
        ):
            raise ValueError("stride: needs task.window and must not be larger than it")


@dataclass(frozen=True)
class Segmentation:
    """Loss of logits (N, K, H, W) with labels uint8 (N, H, W), plus that of auxiliary logits.

    Attributes:
        loss: specification for the first logits, a Loss of zoo/losses/segment.
        aux_loss: for all further ones; it counts the same items.
        aux_weight: factor of the loss of all further logits.
    """

    loss: Any
    aux_loss: Any
    aux_weight: float = 0.4


@dataclass(frozen=True)
class ClassMap:
    """Predictions of a segmentation model: the most probable class of each pixel, uint8 (N, H, W).

    The scores of several passes over an image (scales, mirror images) are averaged as probabilities, those of the
    windows of one pass as logits.

    Attributes:
        window: height and width of the sliding windows; None for the whole image.
        stride: vertical and horizontal distance of the windows; None for two thirds of the window, rounded up.
        flip: whether the mirror image is a further pass.
    """

    window: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    flip: bool = False


def settings_class(loss: str = "cross_entropy") -> type[Any]:
    """Return the class of the `task:` section with a loss."""
    return with_loss("segment", Keys, loss)


Settings: Any = settings_class()


def objective(settings: Any) -> Segmentation:
    """Return the loss; hard pixels are mined for the first logits alone."""
    loss = loss_of("segment", settings)
    mining = {key: None for key in ("ohem_kept", "ohem_threshold") if hasattr(loss, key)}
    return Segmentation(loss, replace(loss, **mining), settings.aux_weight)


def output(settings: Keys) -> ClassMap:
    """Return the form of a prediction."""
    return ClassMap(settings.window, settings.stride, settings.flip)


def protocol(views: str, settings: Keys) -> str:
    """Return the last part of a protocol id, such as whole@1024x2048 or slide769x769/513x513@1025x2049-flip."""
    mode = "whole"
    if settings.window:
        sides = [settings.window, settings.stride or _default_stride(settings.window)]
        mode = "slide" + "/".join("x".join(map(str, pair)) for pair in sides)
    return f"{mode}@{views}" + ("-flip" if settings.flip else "")


def windows(size: tuple[int, int], output: ClassMap) -> list[tuple[int, int, int, int]]:
    """Compute the sliding windows over an image.

    The last window of a row or column is moved back inside the image. A window larger than the image is cut to it.

    Args:
        size: height and width of the image.
        output: the window and its stride.

    Returns:
        (top, bottom, left, right) of each window, row by row; a single one, the whole image, without sliding windows.
    """
    if output.window is None:
        return [(0, size[0], 0, size[1])]
    strides = output.stride or _default_stride(output.window)
    spans = []  # along each axis
    for length, window, stride in zip(size, output.window, strides):
        count = max(length - window + stride - 1, 0) // stride + 1
        ends = [min(i * stride + window, length) for i in range(count)]
        spans.append([(max(end - window, 0), end) for end in ends])
    return [(top, bottom, left, right) for top, bottom in spans[0] for left, right in spans[1]]


class Metric:
    """Mean IoU from a confusion matrix; see zoo.tasks.TaskMetric.

    The rows of the matrix are labels and the columns predictions; its last column counts predictions of classes that
    the data does not have.
    """

    def __init__(self, dataset: "Dataset", settings: Keys = Keys()):
        self.classes = dataset.classes
        count = len(self.classes)
        self.state: dict[str, np.ndarray] = {
            "confusion": np.zeros((count, count + 1), np.int64),
            "samples": np.zeros((), np.int64),
        }

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch; pixels with the label IGNORE_INDEX do not count.

        Args:
            outputs: predicted classes, uint8 (N, H, W).
            batch: with `label`, uint8 (N, H, W), and `valid` (N,).
        """
        valid, count = batch["valid"] > 0, len(self.classes)
        predictions, labels = outputs[valid], batch["label"][valid]
        labelled = labels != IGNORE_INDEX
        cells = labels[labelled].astype(np.int64) * (count + 1) + np.minimum(predictions[labelled], count)
        confusion = np.bincount(cells, minlength=count * (count + 1)).reshape(count, count + 1)
        self.state = {"confusion": self.state["confusion"] + confusion, "samples": self.state["samples"] + valid.sum()}

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return `miou`, `macc` (mean class accuracy), `aacc` (pixel accuracy) and `iou` by class, all as fractions.

        They are defined as in Cityscapes' evaluation script. The mean IoU leaves out classes that are neither in labels
        nor in predictions, the mean accuracy those without a label.

        Raises:
            UserError: no pixel has a label.
        """
        confusion = state["confusion"]
        correct, labelled, predicted = np.diag(confusion), confusion.sum(1), confusion[:, :-1].sum(0)
        union = labelled + predicted - correct
        if not labelled.any():
            raise UserError("the validation set has no labelled pixel; check its label files and data.classes")
        iou = {name: float(correct[i] / union[i]) for i, name in enumerate(self.classes) if union[i]}
        accuracies = correct[labelled > 0] / labelled[labelled > 0]
        return {
            "miou": sum(iou.values()) / len(iou),
            "macc": float(accuracies.mean()),
            "aacc": float(correct.sum() / labelled.sum()),
            "samples": int(state["samples"]),
            "iou": iou,
        }


def _default_stride(window: tuple[int, int]) -> tuple[int, int]:
    """Return two thirds of a window, rounded up."""
    return -(-2 * window[0] // 3), -(-2 * window[1] // 3)
