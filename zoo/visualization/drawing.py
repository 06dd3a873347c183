"""Images of an evaluation: samples with their predictions, as each task draws them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zoo.data.batch import IGNORE_INDEX
from zoo.visualization import canvas
from zoo.visualization.evaluation import Evaluation, Prediction

IMAGE_SIDE, FRAME_SIDE = 224, 128  # longer side, in pixels
COLUMNS = 4  # of images
MAX_FRAMES = 16  # of a strip; more are left out evenly
SCENE_SIDE = 384  # longer side, in pixels
PAIRS = 4  # of a kind
FACE_SIDE = 112  # of an image, in pixels
COLORS = {True: canvas.RIGHT, False: canvas.WRONG, None: canvas.NEUTRAL}
KINDS = (  # title, whether the person is the same, whether the most similar pairs are drawn
    ("same person, most alike", True, True),
    ("same person, least alike", True, False),
    ("different persons, least alike", False, False),
    ("different persons, most alike", False, True),
)
NAMED = 5  # classes of a sample that has several


class Tile(NamedTuple):
    """A sample as it is shown.

    Attributes:
        pixels: uint8 (H, W, 3).
        is_right: whether it is; None where it is neither right nor wrong.
    """

    pixels: np.ndarray
    text: str
    is_right: bool | None = None
    name: str = ""

    def captioned(self) -> np.ndarray:
        """Return the image below its text."""
        return canvas.caption(self.pixels, self.text, COLORS[self.is_right])


def draw_classes(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, and `confusion` if the classes are few enough to count it."""
    images = {}
    tiles = [class_tile(evaluation, prediction).captioned() for prediction in evaluation.predictions]
    if tiles:
        is_clip = len(evaluation.dataset.fields[0].shape) - (evaluation.dataset.views > 1) > 3
        images["samples"] = canvas.grid(tiles, 1 if is_clip else COLUMNS)
    if "confusion" in evaluation.state:
        images["confusion"] = canvas.confusion_matrix(evaluation.state["confusion"], evaluation.dataset.classes)
    return images


def class_tile(evaluation: Evaluation, prediction: Prediction, frames_shown: int = MAX_FRAMES) -> Tile:
    """Draw a sample with its label and the most probable class.

    Args:
        prediction: its logits are those of its views, (V, K).
    """
    index, logits = prediction
    sample, classes, name = evaluation.sample(index), evaluation.dataset.classes, evaluation.dataset.name(index)
    if sample is None:
        return _unreadable(name)
    image, target = evaluation.image(sample), np.asarray(sample["label"])
    step = -(-len(image) // frames_shown)
    frames = image[None] if image.ndim == 3 else image[step // 2 :: step]
    size = canvas.fit(frames.shape[1:3], IMAGE_SIDE if image.ndim == 3 else FRAME_SIDE)
    strip = canvas.row([canvas.resize(frame, size) for frame in frames])
    mean = logits.astype(np.float64).mean(0)
    if target.ndim:
        return Tile(strip, *_label_text(classes, mean[: len(target)] > 0, target > 0), name)
    with np.errstate(invalid="ignore"):  # logits that are not finite have the probability nan
        exponentials = np.exp(mean - mean.max())
        predicted, probability = int(mean.argmax()), exponentials.max() / exponentials.sum()
    text = f"{_name(classes, predicted)} {probability:.2f}"
    if predicted == target:
        return Tile(strip, text, True, name)
    return Tile(strip, f"{text}, is {_name(classes, int(target))}", False, name)


def _label_text(classes: Sequence, predicted: np.ndarray, target: np.ndarray) -> tuple[str, bool]:
    """Return the classes above a probability of 0.5, those missed, those that are wrong; and whether all are right."""
    parts = {"": predicted & target, "missed: ": target & ~predicted, "wrong: ": predicted & ~target}
    named = {title: _names(classes, np.flatnonzero(has)) for title, has in parts.items()}
    texts = [title + names for title, names in named.items() if names]
    return "; ".join(texts) or "none", bool((predicted == target).all())


def _names(classes: Sequence, labels: np.ndarray) -> str:
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return ", ".join(_name(classes, label) for label in labels[:NAMED]) + more


def _unreadable(name: str) -> Tile:
    return Tile(np.full((canvas.LINE, IMAGE_SIDE, 3), canvas.BACKGROUND, np.uint8), "cannot be read", False, name)


def _name(classes: Sequence, label: int) -> str:
    return str(classes[label]) if label < len(classes) else f"output {label}"


def draw_scenes(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, a row each: image, labels, prediction; and `confusion`."""
    rows = []
    for prediction in evaluation.predictions:
        tile = scene_tile(evaluation, prediction)
        rows.append(tile._replace(text=f"{tile.name}: {tile.text}").captioned())
    matrix = canvas.confusion_matrix(evaluation.state["confusion"], evaluation.dataset.classes)
    return {**({"samples": canvas.column(rows)} if rows else {}), "confusion": matrix}


def scene_tile(evaluation: Evaluation, prediction: Prediction) -> Tile:
    """Draw a scene, its labels and the predicted ones side by side.

    Args:
        prediction: the class of each pixel, uint8 (1, H, W).
    """
    from zoo.data.formats.masks import class_colors  # as below, which the images of other tasks do without
    from zoo.predict.overlay import blend

    index, (predicted,) = prediction
    sample, name = evaluation.sample(index), evaluation.dataset.name(index)
    if sample is None:
        return _unreadable(name)
    names = [str(name) for name in evaluation.dataset.classes]
    colors = np.zeros((256, 3), np.uint8)  # pixels without a label are black
    colors[: len(names)] = class_colors(names)
    label = sample["label"]
    labelled = label != IGNORE_INDEX
    size = canvas.fit(predicted.shape, SCENE_SIDE)
    image = canvas.resize(evaluation.image(sample), size)
    overlays = [blend(image, canvas.resize_labels(labels, size), colors) for labels in (label, predicted)]
    right = np.mean(label[labelled] == predicted[labelled]) if labelled.any() else np.nan
    return Tile(canvas.row([image, *overlays]), f"image, labels, prediction ({right:.0%} right)", None, name)


def draw_pairs(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    rows = []
    for title, tiles in pair_tiles(evaluation).items():
        rows += [canvas.label(title), canvas.row([tile.captioned() for tile in tiles])]
    return {"pairs": canvas.column(rows)} if rows else {}


def pair_tiles(evaluation: Evaluation) -> dict[str, list[Tile]]:
    """Draw the pairs of KINDS, by the distances of all pairs of all ranks."""
    state = evaluation.state
    distance, same = state["distance"], state["same"] > 0
    readable = (state["seen"] > 0) & np.isfinite(distance)
    accepted = distance < _thresholds(evaluation, distance, same, readable)
    found = {}
    for title, is_same, most_alike in KINDS:
        candidates = np.flatnonzero(readable & (same == is_same))
        order = np.argsort(distance[candidates] if most_alike else -distance[candidates], kind="stable")
        tiles = [
            _pair_tile(evaluation, int(index), distance[index], bool(accepted[index] == is_same))
            for index in candidates[order[:PAIRS]]
        ]
        if tiles:
            found[title] = tiles
    return found


def _thresholds(evaluation: Evaluation, distance: np.ndarray, same: np.ndarray, readable: np.ndarray) -> np.ndarray:
    """Return for each pair the distance that divides the pairs of its set best, (P,)."""
    from zoo.tasks.face import best_threshold

    thresholds = np.zeros(len(distance))
    for _, first, count in evaluation.dataset.sets:  # type: ignore[attr-defined]
        rows = slice(first, first + count)
        known = readable[rows]
        thresholds[rows] = best_threshold(distance[rows][known], same[rows][known])
    return thresholds


def _pair_tile(evaluation: Evaluation, index: int, distance: float, is_right: bool) -> Tile:
    """Draw a pair with the cosine of its embeddings, and whether the best threshold gets it right."""
    sample = evaluation.sample(index)
    images = (
        np.zeros((2, FACE_SIDE, FACE_SIDE, 3), np.uint8)
        if sample is None
        else sample[evaluation.dataset.fields[0].name]
    )
    size = canvas.fit(images.shape[1:3], FACE_SIDE)
    text = f"cosine {1 - distance / 2:.2f}, {'right' if is_right else 'wrong'}"
    return Tile(canvas.row([canvas.resize(image, size) for image in images]), text, is_right)


TASKS: Mapping[str, Callable[[Evaluation], Mapping[str, np.ndarray]]] = {
    "classify": draw_classes,
    "multilabel": draw_classes,
    "segment": draw_scenes,
    "face": draw_pairs,
}


def draw(task: str, evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw the images of an evaluation, uint8 RGB (H, W, 3), by name; a task that has none is not in TASKS."""
    return TASKS[task](evaluation) if task in TASKS else {}
