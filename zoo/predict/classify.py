"""Classes of images and clips, with the probabilities that an evaluation computes."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from zoo.data import addresses, order, sources
from zoo.data.datasets import imagenet, kinetics, multilabel
from zoo.data.errors import BadSample
from zoo.data.formats.label_sets import LabeledSet
from zoo.data.formats.lists import LabeledPath
from zoo.predict import explain
from zoo.predict.results import DEFAULT_TOP, Request, Row, Sample, Source, TrainedModel, count_frames
from zoo.predict.urls import local_path

THRESHOLD = 0.5  # of the probability, without one that an evaluation has chosen
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


class Labels(NamedTuple):
    """The classes of an image that may have any number of them.

    Attributes:
        labels: names of all classes, the most probable first.
        probabilities: of each of these, float64.
        present: names of those above their thresholds, likewise.
    """

    labels: tuple[str, ...]
    probabilities: np.ndarray
    present: tuple[str, ...]


def image_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> imagenet.ImageSplit:
    settings, names = _placed(settings, path)
    return imagenet.ImageSplit(settings, [LabeledPath(name, 0) for name in names], class_names, False)


def tagged_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> multilabel.MultiLabelSplit:
    settings, names = _placed(settings, path)
    return multilabel.MultiLabelSplit(settings, [LabeledSet(name, ()) for name in names], class_names, False)


def clip_split(settings: Any, class_names: tuple[str, ...], path: str | None) -> kinetics.ClipSplit:
    """Return the evaluation split of a single video or folder of frames, or of none."""
    frames = count_frames(path, settings.frame_template) or None if path else None
    settings, names = _placed(settings, path)
    return kinetics.ClipSplit(settings, [LabeledPath(name, 0, frames) for name in names], class_names, False)


def _placed(settings: Any, path: str | None) -> tuple[Any, list[str]]:
    """Return settings whose root, joined with the name that is returned, too, is a path; no name for none."""
    if path is None:
        return settings, []
    if not addresses.is_address(path):
        return settings, [os.path.abspath(path)]  # which stays the same whatever root it is joined to
    folder, name = os.path.split(sources.absolute(path))
    return replace(settings, root=folder), [name]


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
    row: Row = {"predictions": _rows(top)}
    row |= _explained(model, sample, dict(zip(found.labels, found.probabilities)), request, output)
    return _line(top), row


def find_labels(
    model: TrainedModel, _source: Source, _sample: Sample, logits: np.ndarray, threshold: float | None = None
) -> Labels:
    """Return the classes of an image by its logits (V, K), as the metric computes them. Raises BadSample.

    Args:
        threshold: of all probabilities; None: that of each class.
    """
    in_order = sigmoid(logits.astype(np.float64).mean(0))
    order, limits = np.argsort(-in_order, kind="stable"), model.thresholds
    names = tuple(model.class_names[label] for label in order)
    given = {name: limits.get(name, THRESHOLD) if threshold is None else threshold for name in names}
    present = (in_order[label] > given[name] for name, label in zip(names, order))
    return Labels(names, in_order[order], tuple(name for name, is_there in zip(names, present) if is_there))


def describe_labels(
    model: TrainedModel, source: str, sample: Sample, logits: np.ndarray, request: Request, output: str
) -> tuple[str, Row]:
    """Return the line and the row of a file: its classes or, with a number of them, that many of the most probable."""
    found = find_labels(model, source, sample, logits, request.threshold)
    shares = dict(zip(found.labels, map(float, found.probabilities)))
    top = [*shares.items()][: request.top] if request.top else [(name, shares[name]) for name in found.present]
    row: Row = {
        "labels": list(found.present),
        "predictions": _rows(top),
        **_explained(model, sample, shares, request, output),
    }
    best = found.labels[0]
    return _line(top) or f"none of the classes; the most probable: {best} {shares[best]:.3f}", row


def _rows(top: Iterable[tuple[str, float]]) -> list[Row]:
    return [{"label": name, "probability": share} for name, share in top]


def _line(top: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {share:.3f}" for name, share in top)


def _explained(
    model: TrainedModel, sample: Sample, shares: Mapping[str, float], request: Request, output: str
) -> dict[str, Row]:
    """Write the activation map that a user asks for, of the most probable class or another. shares: by class."""
    if request.explain is None:
        return {}
    name, path = request.explain or max(shares, key=lambda name: shares[name]), f"{output}_explanation.png"
    explain.write_activations(model, sample, model.class_names.index(name), float(shares[name]), path)
    return {"written": {"explanation": path}}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Compute probabilities (K,) from logits (K,). Raises BadSample."""
    _require_finite(logits)
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Compute the probability of each class (K,) from logits (K,). Raises BadSample."""
    _require_finite(logits)
    return np.exp(-np.logaddexp(0, -logits))


def _require_finite(logits: np.ndarray) -> None:
    if not np.isfinite(logits).all():
        raise BadSample("the model's logits are not finite; the weights may be those of a run that diverged")
