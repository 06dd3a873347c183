"""Semantic segmentation: the objective, how a picture's class map is made, and the mean IoU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from data.batch import Batch
from data.errors import UserError

PRIMARY = "miou"  # the metric that targets and `best` go by
IGNORE_INDEX = 255  # the label of pixels that count for nothing


@dataclass(frozen=True)
class Settings:
    """The `task:` section."""

    aux_weight: float = 0.4  # of the auxiliary head's loss
    average: Literal["valid", "all"] = "valid"  # the mean over labelled pixels, or ignored ones too, as mmseg's is
    ohem_kept: int | None = None  # train on the hardest pixels alone: at least so many per picture ...
    ohem_threshold: float | None = None  # ... and all whose own class has a lower probability than this
    window: tuple[int, int] | None = None  # evaluate by sliding windows of this height and width
    stride: tuple[int, int] | None = None  # from window to window; default two thirds of it, rounded up
    flip: bool = False  # evaluate each picture also mirrored

    def __post_init__(self):
        if self.aux_weight < 0:
            raise ValueError("aux_weight: must not be negative")
        if self.ohem_kept is not None and self.ohem_kept < 1:
            raise ValueError("ohem_kept: must be at least 1")
        if self.ohem_threshold is not None and (self.ohem_kept is None or not 0 < self.ohem_threshold <= 1):
            raise ValueError("ohem_threshold: a probability in (0, 1], together with ohem_kept")
        for key in ("window", "stride"):
            if getattr(self, key) is not None and min(getattr(self, key)) < 1:
                raise ValueError(f"{key}: height and width, at least 1")
        if self.stride is not None and (
            self.window is None or self.stride[0] > self.window[0] or self.stride[1] > self.window[1]
        ):
            raise ValueError("stride: from window to window, so not larger than task.window")


@dataclass(frozen=True)
class PixelCrossEntropy:
    """Softmax cross-entropy of logits (N, K, H, W) with labels (N, H, W), and `aux_weight` times that of further ones.

    kept, threshold: online hard example mining of the first logits (mmsegmentation's OHEMPixelSampler): with a
    threshold, pixels whose own class has a probability below max(threshold, that of the kept * N-th hardest); without,
    those of the kept * N largest losses. The sum is still divided by what `average` says, not by the number kept.
    """

    average: str = "valid"
    aux_weight: float = 0.4
    kept: int | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class ClassMap:
    """What Trainer.predict returns: the likeliest class of each pixel, uint8 (N, H, W).

    Several passes over a picture (scales, mirrored) are averaged as probabilities; windows of one pass as logits.
    """

    window: tuple[int, int] | None = None
    stride: tuple[int, int] | None = None
    flip: bool = False


def objective(settings: Settings) -> PixelCrossEntropy:
    return PixelCrossEntropy(settings.average, settings.aux_weight, settings.ohem_kept, settings.ohem_threshold)


def output(settings: Settings) -> ClassMap:
    return ClassMap(settings.window, settings.stride, settings.flip)


def windows(size: tuple[int, int], output: ClassMap) -> list[tuple[int, int, int, int]]:
    """(top, bottom, left, right) of the windows over a picture of height and width `size`; all of it without windows.

    The last ones are shifted back inside; a window larger than the picture is cut to it.
    """
    if output.window is None:
        return [(0, size[0], 0, size[1])]
    stride = output.stride or tuple(-(-2 * side // 3) for side in output.window)
    spans = []
    for length, window, step in zip(size, output.window, stride):
        count = max(length - window + step - 1, 0) // step + 1
        spans.append(
            [(max(min(i * step + window, length) - window, 0), min(i * step + window, length)) for i in range(count)]
        )
    return [(top, bottom, left, right) for top, bottom in spans[0] for left, right in spans[1]]


class Metric:
    """A confusion matrix: rows are labels, columns predictions, the last one of classes that the data does not have.

    The state is additive: sum it over ranks, then ask for the result.
    """

    def __init__(self, dataset, settings: Settings = Settings()):
        self.classes: tuple[str, ...] = dataset.classes
        count = len(self.classes)
        self.state = {"confusion": np.zeros((count, count + 1), np.int64), "samples": np.zeros((), np.int64)}

    def update(self, classes: np.ndarray, batch: Batch) -> None:
        """classes: uint8 (N, H, W), as the labels. Rows that are not valid and pixels without a label are left out."""
        valid, count = batch["valid"] > 0, len(self.classes)
        predicted, labels = classes[valid], batch["label"][valid]
        known = labels != IGNORE_INDEX
        pairs = labels[known].astype(np.int64) * (count + 1) + np.minimum(predicted[known], count)
        found = np.bincount(pairs, minlength=count * (count + 1)).reshape(count, count + 1)
        self.state = {"confusion": self.state["confusion"] + found, "samples": self.state["samples"] + valid.sum()}

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Fractions, as Cityscapes' own script defines them; `iou` by class. A class that is in neither labels nor
        predictions is left out of the mean IoU, one without a label out of the mean accuracy."""
        confusion = state["confusion"]
        right, labelled, predicted = np.diag(confusion), confusion.sum(1), confusion[:, :-1].sum(0)
        union = labelled + predicted - right
        if not labelled.any():
            raise UserError("the validation set has no labelled pixel at all")
        iou = {name: float(right[i] / union[i]) for i, name in enumerate(self.classes) if union[i]}
        accuracies = right[labelled > 0] / labelled[labelled > 0]
        return {
            "miou": sum(iou.values()) / len(iou),
            "macc": float(accuracies.mean()),
            "aacc": float(right.sum() / labelled.sum()),
            "samples": int(state["samples"]),
            "iou": iou,
        }
