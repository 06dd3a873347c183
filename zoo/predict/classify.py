"""Classes of images and clips, with the probabilities that an evaluation computes."""

import os
from typing import NamedTuple

import numpy as np

from zoo.data import order
from zoo.data.datasets import imagenet, kinetics
from zoo.data.errors import BadSample
from zoo.data.formats.lists import LabeledPath
from zoo.predict.results import DEFAULT_TOP, Prediction, Source, TrainedModel, count_frames


class Classification(NamedTuple):
    """The classes of an image or a clip.

    Attributes:
        labels: names of all classes, the most probable first.
        probabilities: of these, float64.
    """

    labels: tuple[str, ...]
    probabilities: np.ndarray


def classify_image(model: TrainedModel, path: str, index: int, top: int | None, _output: str) -> Prediction:
    """Classify an image; see _describe."""
    return _describe(model, image_probabilities(model, path, index), top)


def classify_clip(model: TrainedModel, path: str, index: int, top: int | None, _output: str) -> Prediction:
    """Classify a video or a folder of frames; see _describe."""
    return _describe(model, clip_probabilities(model, path, index), top)


def image_result(model: TrainedModel, source: Source, index: int) -> Classification:
    """Return the classes of an image. Raises BadSample."""
    return _result(model, image_probabilities(model, source, index))


def clip_result(model: TrainedModel, source: Source, index: int) -> Classification:
    """Return the classes of a video, a folder of frames or frames. Raises BadSample."""
    return _result(model, clip_probabilities(model, source, index))


def image_probabilities(model: TrainedModel, source: Source, index: int) -> np.ndarray:
    """Return the probabilities of an image, a path or uint8 (H, W, 3); see _probabilities."""
    paths = [_sample(source)] if isinstance(source, str) else []
    split = imagenet.ImageSplit(model.cfg.data, paths, model.class_names, False)
    return _probabilities(model, split, source, index)


def clip_probabilities(model: TrainedModel, source: Source, index: int) -> np.ndarray:
    """Return the probabilities of a clip, a path or uint8 (n, H, W, 3); see _probabilities."""
    paths = []
    if isinstance(source, str):
        paths = [_sample(source, count_frames(source, model.cfg.data.frame_template) or None)]
    split = kinetics.ClipSplit(model.cfg.data, paths, model.class_names, False)
    return _probabilities(model, split, source, index)


def _sample(path: str, frames: int | None = None) -> LabeledPath:
    """Return the only sample of a split; an absolute path stays the same whatever root it is joined to."""
    return LabeledPath(os.path.abspath(path), 0, frames)


def _probabilities(
    model: TrainedModel, split: imagenet.ImageSplit | kinetics.ClipSplit, source: Source, index: int
) -> np.ndarray:
    """Compute the probabilities of the classes, float64 (K,).

    Args:
        model: the classifier.
        split: reads and scales the source as an evaluation does; a path is its only sample.
        source: the path, or decoded pixels.
        index: number of the source among all; it seeds the split's random choices.

    Raises:
        BadSample: the file cannot be read, or the logits are not finite.
    """
    name, rng = split.fields[0].name, order.generator(model.cfg.seed, "evaluate", index)
    views = split.sample(0, rng)[name] if isinstance(source, str) else split.from_pixels(source, rng)
    batch = {name: views if split.views > 1 else np.stack([views])}
    logits = model.trainer.predict(model.trainer.to_device(batch))
    return softmax(logits.astype(np.float64).mean(0))  # of the mean over views, as the metric computes it


def _result(model: TrainedModel, probabilities: np.ndarray) -> Classification:
    labels = np.argsort(-probabilities, kind="stable")
    return Classification(tuple(model.class_names[label] for label in labels), probabilities[labels])


def _describe(model: TrainedModel, probabilities: np.ndarray, top: int | None) -> Prediction:
    """Return the line and the row of a file. top: number of classes to list, DEFAULT_TOP if None."""
    labels = np.argsort(-probabilities, kind="stable")[: top or DEFAULT_TOP]
    line = ", ".join(f"{model.class_names[label]} {probabilities[label]:.3f}" for label in labels)
    row = {"top": [model.class_names[label] for label in labels], "probabilities": probabilities.tolist()}
    return Prediction(line, row)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Compute probabilities (K,) from logits (K,).

    Raises:
        BadSample: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise BadSample("the model's logits are not finite; the weights may be those of a run that diverged")
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()
