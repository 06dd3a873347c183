"""Semantic segmentation: class maps by sliding windows, mean IoU; the losses are in zoo/losses/segment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.dataset import Dataset
from zoo.data.errors import UserError
from zoo.losses import load_loss
from zoo.losses.segment import IGNORE_INDEX
from zoo.losses.segment import Settings as Keys
from zoo.tasks import Forward, Size

PRIMARY = "miou"


@dataclass(frozen=True)
class ClassMap:
    """Predictions of a segmentation model: the most probable class of each pixel, uint8 (N, H, W).

    The scores of several passes over an image (scales, mirror images) are averaged as probabilities, those of the
    windows of one pass as logits.

    Attributes:
        window: height and width of the sliding windows; None for the whole image.
        stride: vertical and horizontal distance of the windows; None for two thirds of the window, rounded up.
        flip: whether the mirror image is a further pass.
        probabilities: give those of all classes (N, K, H, W) instead.
    """

    window: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    flip: bool = False
    probabilities: bool = False

    def predict(self, ops: Any, arch: Any, forward: Forward, images: Sequence[Any], size: Size | None) -> Any:
        passes = [(image, mirrored) for image in images for mirrored in (False, True)[: 1 + self.flip]]
        total: Any = 0
        for image, mirrored in passes:
            scores = self._logits(ops, forward, ops.flip(image, 2) if mirrored else image)
            if size is not None and tuple(scores.shape[2:]) != tuple(size):
                scores = ops.resize(scores, tuple(size), arch.align_corners)
            scores = ops.flip(scores, 3) if mirrored else scores
            total = scores if len(passes) == 1 else total + ops.softmax(scores)
        if self.probabilities:
            return ops.softmax(total) if len(passes) == 1 else total / len(passes)
        return ops.class_map(total)

    def _logits(self, ops: Any, forward: Forward, image: Any) -> Any:
        """Return the logits (N, K, h, w) of one pass; where windows overlap, their mean."""
        size = image.shape[1], image.shape[2]
        boxes = windows(size, self)
        if len(boxes) == 1:
            return forward(image)
        total, count = None, np.zeros(size, np.float32)
        for top, bottom, left, right in boxes:
            count[top:bottom, left:right] += 1
            total = ops.add_window(total, forward(image[:, top:bottom, left:right]), (top, bottom, left, right), size)
        return total / ops.array(count, total)


Settings: Any = load_loss("segment", "cross_entropy")


def output(settings: Keys) -> ClassMap:
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

    def __init__(self, dataset: Dataset, settings: Keys | None = None):
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
