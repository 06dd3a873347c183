"""Classes of images and clips, with the probabilities that an evaluation computes."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo.data import order
from zoo.data.datasets import imagenet, kinetics
from zoo.data.errors import BadSample
from zoo.data.formats.lists import LabeledPath
from zoo.predict import explain
from zoo.predict.results import DEFAULT_TOP, Request, Row, Sample, Source, TrainedModel, count_frames
from zoo.predict.urls import local_path

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
    # An absolute path stays the same whatever root it is joined to.
    samples = [] if path is None else [LabeledPath(os.path.abspath(path), 0)]
    return imagenet.ImageSplit(settings, samples, class_names, False)


def clip_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> kinetics.ClipSplit:
    """Return the evaluation split of a single video or folder of frames, or of none."""
    samples = []
    if path is not None:
        samples = [LabeledPath(os.path.abspath(path), 0, count_frames(path, settings.frame_template) or None)]
    return kinetics.ClipSplit(settings, samples, class_names, False)


def read(make_split: MakeSplit, settings: Any, seed: int, source: Source, index: int) -> Sample:
    """Read and scale an image or a clip as an evaluation does. Raises BadSample.

    Args:
        source: the path, or decoded pixels.
        index: number of the source among all; it seeds the split's random choices.
    """
    rng = order.generator(seed, "evaluate", index)
    if isinstance(source, str):
        with local_path(source) as path:
            split = make_split(settings, (), path)
            views = split.sample(0, rng)[split.fields[0].name]
    else:
        split = make_split(settings, (), None)
        views = split.from_pixels(source, rng)
    return Sample({split.fields[0].name: views if split.views > 1 else views[None]})


def classify(model: TrainedModel, _source: Source, _sample: Sample, logits: np.ndarray) -> Classification:
    """Return the classes by the mean over views (V, K) of the logits, as the metric computes it. Raises BadSample."""
    in_order = softmax(logits.astype(np.float64).mean(0))
    labels = np.argsort(-in_order, kind="stable")
    return Classification(tuple(model.class_names[label] for label in labels), in_order[labels])


def describe(
    model: TrainedModel, source: str, sample: Sample, logits: np.ndarray, request: Request, output: str
) -> tuple[str, Row]:
    """Return the line and the row of a file, and write its class activation map. Raises BadSample."""
    found = classify(model, source, sample, logits)
    top = list(zip(found.labels, map(float, found.probabilities)))[: request.top or DEFAULT_TOP]
    row: Row = {"predictions": [{"label": name, "probability": share} for name, share in top]}
    if request.explain is not None:
        mean = logits.astype(np.float64).mean(0)
        label = model.class_names.index(request.explain) if request.explain else int(mean.argmax())
        row["written"] = {"explanation": f"{output}_explanation.png"}
        explain.write_activations(model, sample, label, float(softmax(mean)[label]), row["written"]["explanation"])
    return ", ".join(f"{name} {share:.3f}" for name, share in top), row


def softmax(logits: np.ndarray) -> np.ndarray:
    """Compute probabilities (K,) from logits (K,). Raises BadSample."""
    if not np.isfinite(logits).all():
        raise BadSample("the model's logits are not finite; the weights may be those of a run that diverged")
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()
