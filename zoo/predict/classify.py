"""Classes of images and clips, with the probabilities that an evaluation computes."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo.data import order
from zoo.data.datasets import imagenet, kinetics
from zoo.data.errors import BadSample
from zoo.data.formats.lists import LabeledPath
from zoo.predict.results import DEFAULT_TOP, Prediction, Source, TrainedModel, count_frames

Split = imagenet.ImageSplit | kinetics.ClipSplit
MakeSplit = Callable[[Any, tuple[str, ...], str | None], Split]


class Classification(NamedTuple):
    """The classes of an image or a clip.

    Attributes:
        labels: names of all classes, the most probable first.
        probabilities: of these, float64.
    """

    labels: tuple[str, ...]
    probabilities: np.ndarray


def image_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> imagenet.ImageSplit:
    """Return the evaluation split of a single image, or of none."""
    # An absolute path stays the same whatever root it is joined to.
    samples = [] if path is None else [LabeledPath(os.path.abspath(path), 0)]
    return imagenet.ImageSplit(settings, samples, class_names, False)


def clip_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> kinetics.ClipSplit:
    """Return the evaluation split of a single video or folder of frames, or of none."""
    samples = []
    if path is not None:
        samples = [LabeledPath(os.path.abspath(path), 0, count_frames(path, settings.frame_template) or None)]
    return kinetics.ClipSplit(settings, samples, class_names, False)


def classify(make_split: MakeSplit, model: TrainedModel, source: Source, index: int) -> Classification:
    """Return the classes of an image or a clip; see `probabilities`."""
    return _ranked(model, probabilities(make_split, model, source, index))


def classify_file(
    make_split: MakeSplit, model: TrainedModel, path: str, index: int, top: int | None, _output: str
) -> Prediction:
    """Return the line and the row of a file; see `probabilities`. top: classes to list, DEFAULT_TOP if None."""
    in_order = probabilities(make_split, model, path, index)
    names, shares = (ranked[: top or DEFAULT_TOP] for ranked in _ranked(model, in_order))
    line = ", ".join(f"{name} {share:.3f}" for name, share in zip(names, shares))
    return Prediction(line, {"top": list(names), "probabilities": in_order.tolist()})


def probabilities(make_split: MakeSplit, model: TrainedModel, source: Source, index: int) -> np.ndarray:
    """Compute the probabilities of the classes, float64 (K,).

    Args:
        make_split: returns the split that reads and scales the source as an evaluation does.
        model: the classifier.
        source: the path, or decoded pixels.
        index: number of the source among all; it seeds the split's random choices.

    Raises:
        BadSample: the file cannot be read, or the logits are not finite.
    """
    path = source if isinstance(source, str) else None
    split = make_split(model.cfg.data, model.class_names, path)
    name, rng = split.fields[0].name, order.generator(model.cfg.seed, "evaluate", index)
    views = split.sample(0, rng)[name] if isinstance(source, str) else split.from_pixels(source, rng)
    batch = {name: views if split.views > 1 else np.stack([views])}
    logits = model.trainer.predict(model.trainer.to_device(batch))
    return softmax(logits.astype(np.float64).mean(0))  # of the mean over views, as the metric computes it


def _ranked(model: TrainedModel, in_order: np.ndarray) -> Classification:
    labels = np.argsort(-in_order, kind="stable")
    return Classification(tuple(model.class_names[label] for label in labels), in_order[labels])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Compute probabilities (K,) from logits (K,).

    Raises:
        BadSample: a logit is not finite.
    """
    if not np.isfinite(logits).all():
        raise BadSample("the model's logits are not finite; the weights may be those of a run that diverged")
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()
