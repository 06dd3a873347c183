"""Images of an evaluation: samples with their predictions, as each task draws them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from zoo.data.formats import masks
from zoo.predict.overlay import blend
from zoo.tasks.face import THRESHOLDS
from zoo.visualization import canvas
from zoo.visualization.evaluation import Evaluation

IMAGE_SIDE, FRAME_SIDE = 224, 128  # longer side, in pixels
COLUMNS = 4  # of images
MAX_FRAMES = 16  # of a strip; more are left out evenly
SCENE_SIDE = 384  # longer side, in pixels
PAIRS = 4  # of a kind
FACE_SIDE = 112  # of an image, in pixels
KINDS = (  # title, whether the person is the same, whether the most similar pairs are drawn
    ("same person, most alike", True, True),
    ("same person, least alike", True, False),
    ("different persons, least alike", False, False),
    ("different persons, most alike", False, True),
)


def draw_classes(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, and `confusion` if the classes are few enough to count it."""
    images = {}
    tiles = [_sample_tile(evaluation, index, logits) for index, logits in evaluation.predictions]
    if tiles:
        is_clip = len(evaluation.dataset.fields[0].shape) - (evaluation.dataset.views > 1) > 3
        images["samples"] = canvas.grid(tiles, 1 if is_clip else COLUMNS)
    if "confusion" in evaluation.state:
        images["confusion"] = canvas.confusion_matrix(evaluation.state["confusion"], evaluation.dataset.classes)
    return images


def _sample_tile(evaluation: Evaluation, index: int, logits: np.ndarray) -> np.ndarray:
    """Draw a sample with its label and the most probable class.

    Args:
        evaluation: of the sample.
        index: of the sample.
        logits: of its views, (V, K).
    """
    sample, classes = evaluation.sample(index), evaluation.dataset.classes
    if sample is None:
        return canvas.label(f"{evaluation.dataset.name(index)} cannot be read", IMAGE_SIDE, canvas.WRONG)
    image, target = evaluation.image(sample), int(sample["label"])
    frames = image[None] if image.ndim == 3 else image[:: -(-len(image) // MAX_FRAMES)]
    size = canvas.fit(frames.shape[1:3], IMAGE_SIDE if image.ndim == 3 else FRAME_SIDE)
    strip = canvas.row([canvas.resize(frame, size) for frame in frames])
    mean = logits.astype(np.float64).mean(0)
    with np.errstate(invalid="ignore"):  # logits that are not finite have the probability nan
        exponentials = np.exp(mean - mean.max())
        predicted, probability = int(mean.argmax()), exponentials.max() / exponentials.sum()
    text = f"{_name(classes, predicted)} {probability:.2f}"
    if predicted == target:
        return canvas.caption(strip, text, canvas.RIGHT)
    return canvas.caption(strip, f"{text}, is {_name(classes, target)}", canvas.WRONG)


def _name(classes: Sequence, label: int) -> str:
    return str(classes[label]) if label < len(classes) else f"output {label}"


def draw_scenes(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, a row each: image, labels, prediction; and `confusion`."""
    names = [str(name) for name in evaluation.dataset.classes]
    colors = np.zeros((256, 3), np.uint8)  # pixels without a label are black
    colors[: len(names)] = masks.class_colors(names)
    rows = [_scene_row(evaluation, index, labels[0], colors) for index, labels in evaluation.predictions]
    matrix = canvas.confusion_matrix(evaluation.state["confusion"], names)
    return {**({"samples": canvas.column(rows)} if rows else {}), "confusion": matrix}


def _scene_row(evaluation: Evaluation, index: int, predicted: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Draw a scene.

    Args:
        evaluation: of the scene.
        index: of the scene.
        predicted: the class of each pixel, uint8 (H, W).
        colors: of all labels, uint8 (256, 3).
    """
    sample, name = evaluation.sample(index), evaluation.dataset.name(index)
    if sample is None:
        return canvas.label(f"{name} cannot be read", SCENE_SIDE, canvas.WRONG)
    label = sample["label"]
    labelled = label != masks.IGNORE_INDEX
    size = canvas.fit(predicted.shape, SCENE_SIDE)
    image = canvas.resize(evaluation.image(sample), size)
    overlays = [blend(image, canvas.resize_labels(labels, size), colors) for labels in (label, predicted)]
    right = np.mean(label[labelled] == predicted[labelled]) if labelled.any() else np.nan
    return canvas.caption(canvas.row([image, *overlays]), f"{name}: image, labels, prediction ({right:.0%} right)")


def draw_pairs(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `pairs`, a row for each of KINDS, from the distances of all pairs of all ranks."""
    state = evaluation.state
    distance, same = state["distance"], state["same"] > 0
    readable = (state["seen"] > 0) & np.isfinite(distance)
    accepted = distance < _thresholds(evaluation, distance, same, readable)
    rows = []
    for title, is_same, most_alike in KINDS:
        candidates = np.flatnonzero(readable & (same == is_same))
        order = np.argsort(distance[candidates] if most_alike else -distance[candidates], kind="stable")
        tiles = [
            _pair_tile(evaluation, int(index), distance[index], bool(accepted[index] == is_same))
            for index in candidates[order[:PAIRS]]
        ]
        if tiles:
            rows += [canvas.label(title), canvas.row(tiles)]
    return {"pairs": canvas.column(rows)} if rows else {}


def _thresholds(evaluation: Evaluation, distance: np.ndarray, same: np.ndarray, readable: np.ndarray) -> np.ndarray:
    """Return for each pair the distance that divides the pairs of its set best, (P,)."""
    thresholds = np.zeros(len(distance))
    for _, first, count in evaluation.dataset.sets:  # type: ignore[attr-defined]
        rows = slice(first, first + count)
        known = readable[rows]
        right = ((distance[rows][known] < THRESHOLDS[:, None]) == same[rows][known]).sum(1)
        thresholds[rows] = THRESHOLDS[right.argmax()]
    return thresholds


def _pair_tile(evaluation: Evaluation, index: int, distance: float, is_right: bool) -> np.ndarray:
    """Draw a pair with the cosine of its embeddings; the color tells whether the best threshold gets it right."""
    sample = evaluation.sample(index)
    images = (
        np.zeros((2, FACE_SIDE, FACE_SIDE, 3), np.uint8)
        if sample is None
        else sample[evaluation.dataset.fields[0].name]
    )
    size = canvas.fit(images.shape[1:3], FACE_SIDE)
    text, color = ("right", canvas.RIGHT) if is_right else ("wrong", canvas.WRONG)
    return canvas.caption(
        canvas.row([canvas.resize(image, size) for image in images]), f"cosine {1 - distance / 2:.2f}, {text}", color
    )


TASKS: Mapping[str, Callable[[Evaluation], Mapping[str, np.ndarray]]] = {
    "classify": draw_classes,
    "segment": draw_scenes,
    "face": draw_pairs,
}


def draw(task: str, evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw the images of an evaluation, uint8 RGB (H, W, 3), by name; a task that has none is not in TASKS.

    Args:
        task: its name.
        evaluation: what was predicted.
    """
    return TASKS[task](evaluation) if task in TASKS else {}
