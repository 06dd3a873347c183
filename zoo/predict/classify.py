"""Classes of images and clips, with the probabilities that an evaluation computes."""

import os

import numpy as np

from data import order
from data.datasets import imagenet, kinetics
from data.errors import BadSample
from data.formats.lists import LabeledPath
from zoo.predict.inputs import count_frames
from zoo.predict.model import TrainedModel
from zoo.predict.results import DEFAULT_TOP, Prediction


def classify_image(model: TrainedModel, path: str, index: int, top: int | None, _output: str) -> Prediction:
    """Classify an image; see _classify."""
    split = imagenet.ImageSplit(model.cfg.data, [_sample(path)], model.class_names, False)
    return _classify(model, split, index, top)


def classify_clip(model: TrainedModel, path: str, index: int, top: int | None, _output: str) -> Prediction:
    """Classify a video or a folder of frames; see _classify."""
    frames = count_frames(path, model.cfg.data.frame_template) or None
    split = kinetics.ClipSplit(model.cfg.data, [_sample(path, frames)], model.class_names, False)
    return _classify(model, split, index, top)


def _sample(path: str, frames: int | None = None) -> LabeledPath:
    """Return the only sample of a split; an absolute path stays the same whatever root it is joined to."""
    return LabeledPath(os.path.abspath(path), 0, frames)


def _classify(
    model: TrainedModel, split: imagenet.ImageSplit | kinetics.ClipSplit, index: int, top: int | None
) -> Prediction:
    """Predict the only sample of an evaluation split.

    Args:
        model: the classifier.
        split: reads and scales the file as an evaluation does.
        index: number of the file among all; it seeds the split's random choices.
        top: number of classes to list, DEFAULT_TOP if None.

    Raises:
        BadSample: the file cannot be read, or the logits are not finite.
    """
    name = split.fields[0].name
    views = split.sample(0, order.generator(model.cfg.seed, "evaluate", index))[name]
    batch = {name: views if split.views > 1 else np.stack([views])}
    logits = model.trainer.predict(model.trainer.to_device(batch))
    probabilities = softmax(logits.astype(np.float64).mean(0))  # of the mean over views, as the metric computes it
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
