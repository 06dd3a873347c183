"""A second opinion on evaluations: metrics by a plain count, predictions by their definition."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from zoo.compare.reference import metrics, predictions
from zoo.data.batch import Batch, Field
from zoo.data.stream import EvaluationBatches
from zoo.distributed.group import Group
from zoo.run.evaluation import evaluate
from zoo.trainer import numpy_ops

FEW = 0.01  # of the pixels of a class map, in which rounding may decide between two classes


def of_metric(task: Any, settings: Any, group: Group) -> list[str]:
    """Evaluate predictions that are drawn at random, on all ranks, and compare the metrics with a plain count."""
    rng = np.random.default_rng(0)
    drawn, other = (METRICS[settings.task](settings, rng) for _ in range(2))
    if settings.task == "classify":
        other.outputs[0, :, 0], other.outputs[0, :, 3] = np.nan, 9.0  # of class 3, but not right
    outputs = {False: drawn.outputs, True: other.outputs}
    metric, averaged = (task.Metric(drawn.dataset, settings) for _ in range(2))
    split, model = (cast(Any, each) for each in (_Split(drawn), _Drawn(outputs)))
    read = EvaluationBatches(split, 0, BATCH, group.rank, group.size)
    batches = (read(number) for number in range(len(read)))
    found = evaluate(model, batches, drawn.dataset, metric, group, lambda sample: None, averaged)
    with np.errstate(invalid="ignore"):
        expected = {"": drawn.measure(drawn.outputs), "the moving average's ": drawn.measure(other.outputs)}
    for title, values in expected.items():
        measured = found["ema"] if title else found
        for name in metrics.differing(measured, values)[:1]:
            key, _, item = name.partition(" of ")
            pair = [(each.get(key, {}).get(item) if item else each.get(key)) for each in (measured, values)]
            return [
                f"{title}{name} of predictions that are drawn at random is {pair[0]}, and by a plain count {pair[1]}"
            ]
    return []


def of_output(task: Any, settings: Any) -> list[str]:
    """Compare predictions of a model that looks at single pixels: scores, embeddings of mirror images, class maps."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 11, 14, 3)).astype(np.float64)
    if settings.task in ("classify", "multilabel"):
        found = task.output(settings).predict(numpy_ops, None, _corner, [pixels], None)
        return [] if np.array_equal(found, _corner(pixels)) else ["scores of images are not the model's outputs"]
    if settings.task == "face":
        found = task.output(replace(settings, flip=True)).predict(numpy_ops, None, _corner, [pixels], None)
        expected = np.stack([_corner(pixels), _corner(pixels[:, :, ::-1])], 1)
        return [] if np.array_equal(found, expected) else ["embeddings of images and mirror images are not the model's"]
    for window, stride, flip, corners in product((None, (6, 9)), (None, (4, 5)), (False, True), (False, True)):
        if stride and not window:
            continue
        output = task.output(replace(settings, window=window, stride=stride, flip=flip))
        arch = SimpleNamespace(align_corners=corners)
        for size in ((11, 14), (17, 20)):
            found = output.predict(numpy_ops, arch, _logits_of_pixels, [pixels], size)
            expected = predictions.class_map(_logits_of_pixels, pixels, size, window, stride, flip, corners)
            if not np.mean(found == expected) > 1 - FEW:
                return [f"class maps differ from their definition with window {window}, stride {stride}, flip {flip}"]
    return []


def _corner(pixels: np.ndarray) -> np.ndarray:
    return pixels[:, 0, 0]


def _logits_of_pixels(pixels: np.ndarray) -> np.ndarray:
    """Return logits that depend on the place in a window."""
    row, column = np.mgrid[: pixels.shape[1], : pixels.shape[2]]
    x = np.moveaxis(pixels, -1, 1) / 64
    return np.concatenate([x, (x[:, :1] + x[:, 1:2]) / 2 + 0.1 * column, x[:, 2:] + 0.2 * row], 1)


class _Random(NamedTuple):
    """A split with random predictions.

    Attributes:
        outputs: (N, views, ...), by a trainer's `predict`.
        measure: returns the metrics of outputs.
    """

    dataset: Any
    outputs: np.ndarray
    batch: Batch
    measure: Callable[[np.ndarray], dict[str, Any]]


class _Drawn:
    """A model that returns the predictions of the rows that it is given, those of its average if it is asked."""

    def __init__(self, outputs: Mapping[bool, np.ndarray]):
        self.outputs = outputs

    def to_device(self, batch: Batch, images: Any = None) -> Batch:
        return batch

    def predict(self, device_batch: Batch, size: Any = None, averaged: bool = False) -> np.ndarray:
        rows = device_batch["row"].astype(int)  # one for each view
        return self.outputs[averaged].reshape(-1, *self.outputs[averaged].shape[2:])[rows]


BATCH = 9  # of a random split, on each rank; two ranks have one sample or more beyond whole batches


class _Split:
    """A data set of the numbers of rows, one for each view, and what the metric needs."""

    def __init__(self, drawn: _Random):
        samples, views = drawn.outputs.shape[:2]
        rows = np.arange(samples * views).reshape(samples, views)
        self.arrays = {"row": rows if views > 1 else rows[:, 0], **drawn.batch}
        self.fields = tuple(Field(name, array.shape[1:], array.dtype.name) for name, array in self.arrays.items())

    def __len__(self) -> int:
        return len(self.arrays["row"])

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: array[index, ...] for name, array in self.arrays.items()}


def _dataset(views: int, **attributes: Any) -> Any:
    fields, settings = (Field("row", (), "int64", mean=(0.0,), std=(1.0,)),), SimpleNamespace(eval_bad="error")
    return SimpleNamespace(views=views, fields=fields, settings=settings, **attributes)


def _classify(settings: Any, rng: np.random.Generator) -> _Random:
    rows, views, classes = 37, 2, 8
    logits, labels = rng.integers(-6, 7, (rows, views, classes)) / 4, rng.integers(-1, classes, rows)  # with ties
    labels[0] = 3
    dataset = _dataset(views, classes=range(classes))
    return _Random(dataset, logits, {"label": labels}, lambda outputs: metrics.classify(outputs, labels, classes))


def _multilabel(settings: Any, rng: np.random.Generator) -> _Random:
    rows, views, classes = 37, 2, 5
    logits, labels = rng.integers(-6, 7, (rows, views, classes)) / 4, rng.integers(0, 2, (rows, classes))  # with ties
    labels[:, 0], labels[rng.random(rows) < 0.1] = 0, -1  # a class that no sample has, and unreadable samples
    dataset = _Rows(**vars(_dataset(views, classes=range(classes), rows=rows)))
    batch = {"label": labels.astype(np.float32)}
    return _Random(dataset, logits, batch, lambda outputs: metrics.multilabel(outputs, labels, classes))


def _segment(settings: Any, rng: np.random.Generator) -> _Random:
    rows, classes = 19, 6
    labels = rng.integers(0, classes - 2, (rows, 9, 11)).astype(np.uint8)  # two classes have no label
    predictions = np.where(rng.random(labels.shape) < 0.5, labels, rng.integers(0, classes - 1, labels.shape))
    labels[rng.random(labels.shape) < 0.2] = metrics.IGNORED
    dataset = _dataset(1, classes=[str(k) for k in range(classes)])
    outputs = predictions.astype(np.uint8)[:, None]
    return _Random(dataset, outputs, {"label": labels}, lambda outputs: metrics.segment(outputs[:, 0], labels, classes))


class _Rows(SimpleNamespace):
    def __len__(self) -> int:
        return int(self.rows)


def _face(settings: Any, rng: np.random.Generator) -> _Random:
    dataset = _Rows(**vars(_dataset(2, sets=(("first", 0, 25), ("second", 25, 30)), rows=55)))
    labels = rng.integers(0, 2, len(dataset))
    labels[rng.random(len(dataset)) < 0.1] = -1  # unreadable pairs
    first, noise = (rng.standard_normal((len(dataset), 2, 4)) for _ in range(2))
    outputs = np.stack([first, np.where(labels[:, None, None] > 0, first, 0) + noise], 1)
    measure = partial(metrics.face, labels=labels, sets=dataset.sets, far=settings.far)
    return _Random(dataset, outputs, {"label": labels}, measure)


METRICS = {"classify": _classify, "multilabel": _multilabel, "segment": _segment, "face": _face}
