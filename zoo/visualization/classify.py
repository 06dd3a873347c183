"""Images and strips of frames with labels and predictions, and the confusion matrix."""

from collections.abc import Mapping, Sequence

import numpy as np

from zoo.visualization import canvas
from zoo.visualization.evaluation import Evaluation

IMAGE_SIDE, FRAME_SIDE = 224, 128  # longer side, in pixels
COLUMNS = 4  # of images
MAX_FRAMES = 16  # of a strip; more are left out evenly


def draw(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `samples`, and `confusion` if the classes are few enough to count it."""
    images = {}
    tiles = [_tile(evaluation, index, logits) for index, logits in evaluation.predictions]
    if tiles:
        is_clip = len(evaluation.dataset.fields[0].shape) - (evaluation.dataset.views > 1) > 3
        images["samples"] = canvas.grid(tiles, 1 if is_clip else COLUMNS)
    if "confusion" in evaluation.state:
        images["confusion"] = canvas.confusion_matrix(evaluation.state["confusion"], evaluation.dataset.classes)
    return images


def _tile(evaluation: Evaluation, index: int, logits: np.ndarray) -> np.ndarray:
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
