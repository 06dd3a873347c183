"""Semantic segmentation: pixel-wise cross-entropy, class maps by sliding windows, mean IoU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from data.batch import Batch
from data.errors import UserError

if TYPE_CHECKING:  # data.stream imports Grain
    from data.stream import Dataset

PRIMARY = "miou"
IGNORE_INDEX = 255  # label of pixels that have no loss and are not evaluated


@dataclass(frozen=True)
class Settings:
    """The `task:` section."""

    aux_weight: float = 0.4  # of the auxiliary head's loss
    average: Literal["valid", "all"] = "valid"  # the mean over labelled pixels, or ignored ones too, as in mmseg
    ohem_kept: int | None = None  # online hard example mining: train on at least so many pixels per image ...
    ohem_threshold: float | None = None  # ... and on all whose target class has a lower probability than this
    window: tuple[int, int] | None = None  # evaluate by sliding windows of this height and width
    stride: tuple[int, int] | None = None  # from window to window; default two thirds of it, rounded up
    flip: bool = False  # evaluate each image and its mirror image

    def __post_init__(self):
        if self.aux_weight < 0:
            raise ValueError("aux_weight: must not be negative")
        if self.ohem_kept is not None and self.ohem_kept < 1:
            raise ValueError("ohem_kept: must be at least 1")
        if self.ohem_threshold is not None and (self.ohem_kept is None or not 0 < self.ohem_threshold <= 1):
            raise ValueError("ohem_threshold: must be a probability in (0, 1], and needs task.ohem_kept")
        for key in ("window", "stride"):
            if getattr(self, key) is not None and min(getattr(self, key)) < 1:
                raise ValueError(f"{key}: height and width must be at least 1")
        if self.stride is not None and (
            self.window is None or self.stride[0] > self.window[0] or self.stride[1] > self.window[1]
        ):
            raise ValueError("stride: needs task.window and must not be larger than it")


@dataclass(frozen=True)
class PixelCrossEntropy:
    """Softmax cross-entropy of logits (N, K, H, W) with labels (N, H, W), plus that of auxiliary logits.

    With `kept`, the loss of the first logits is restricted to hard pixels (online hard example mining,
    arXiv:1604.03540, as mmsegmentation's OHEMPixelSampler). With a threshold, these are the pixels whose target class
    has a probability below max(threshold, that of the kept * N-th hardest pixel); without one, those with the kept * N
    largest losses. The sum of their losses is still divided by the number of pixels that `average` selects.

    Attributes:
        average: valid to divide by the number of labelled pixels, all by the number of all pixels.
        aux_weight: factor of the loss of all further logits.
        kept: pixels per image to train on at least; None for all.
        threshold: probability of the target class below which a pixel is hard.
    """

    average: str = "valid"
    aux_weight: float = 0.4
    kept: int | None = None
    threshold: float | None = None


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


def objective(settings: Settings) -> PixelCrossEntropy:
    """Return the loss."""
    return PixelCrossEntropy(settings.average, settings.aux_weight, settings.ohem_kept, settings.ohem_threshold)


def output(settings: Settings) -> ClassMap:
    """Return the form of a prediction."""
    return ClassMap(settings.window, settings.stride, settings.flip)


def protocol(views: str, settings: Settings) -> str:
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

    def __init__(self, dataset: "Dataset", settings: Settings = Settings()):
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
