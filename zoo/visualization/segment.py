"""Scenes beside their labels and predictions, drawn over them, and the confusion matrix of the pixels."""

from collections.abc import Mapping

import numpy as np

from zoo.data.formats import masks
from zoo.predict.overlay import blend
from zoo.visualization import canvas
from zoo.visualization.evaluation import Evaluation

SIDE = 384  # longer side, in pixels


def draw(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, a row each: image, labels, prediction; and `confusion`."""
    names = [str(name) for name in evaluation.dataset.classes]
    colors = np.zeros((256, 3), np.uint8)  # pixels without a label are black
    colors[: len(names)] = masks.class_colors(names)
    rows = [_row(evaluation, index, labels[0], colors) for index, labels in evaluation.predictions]
    matrix = canvas.confusion_matrix(evaluation.state["confusion"], names)
    return {**({"samples": canvas.column(rows)} if rows else {}), "confusion": matrix}


def _row(evaluation: Evaluation, index: int, predicted: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Draw a scene.

    Args:
        evaluation: of the scene.
        index: of the scene.
        predicted: the class of each pixel, uint8 (H, W).
        colors: of all labels, uint8 (256, 3).
    """
    sample, name = evaluation.sample(index), evaluation.dataset.name(index)
    if sample is None:
        return canvas.label(f"{name} cannot be read", SIDE, canvas.WRONG)
    label = sample["label"]
    labelled = label != masks.IGNORE_INDEX
    size = canvas.fit(predicted.shape, SIDE)
    image = canvas.resize(evaluation.image(sample), size)
    overlays = [blend(image, canvas.resize_labels(labels, size), colors) for labels in (label, predicted)]
    right = np.mean(label[labelled] == predicted[labelled]) if labelled.any() else np.nan
    return canvas.caption(canvas.row([image, *overlays]), f"{name}: image, labels, prediction ({right:.0%} right)")
