"""A second opinion on what all frameworks share, by zoo/compare/reference: beside it, a slip in shared code shows.

Losses of other packages, and what else the reference does not have, are listed as missing.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from zoo.compare.reference import losses, margin, metrics, predictions, recipe
from zoo.config.schema import Config
from zoo.data import order
from zoo.data.batch import SOFT_LABEL, Batch, Field
from zoo.data.stream import LoadedBatch
from zoo.distributed.group import Group
from zoo.run.dataset import balanced_class_weights
from zoo.run.evaluation import evaluate
from zoo.run.job import Job
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import load_backend, numpy_ops
from zoo.trainer.objectives import find_objective
from zoo.trainer.protocol import DeviceBatch, Trainer

LOSS_TOLERANCE = {True: 1e-9, False: 1e-5}  # relative, of a loss, by whether it is in fp64; in 16 bits it is in fp32
# Of the weights' length, along the gradient, in fp64. Outputs change in proportion to it, but for ReLUs that open or
# close: with 1e-9, slopes of MobileNetV2 were off by 2e-4. With 1e-11, rounding is 2e-7 in nets of ResNet-50's depth.
STEP = 1e-11
SLOPE_TOLERANCE = 1e-4  # relative
RATE_TOLERANCE = 1e-9  # relative, of a learning rate
FEW = 0.01  # of the pixels of a class map, in which rounding may decide between two classes
MAX_RATES = 2000  # learning rates that are compared
State = Mapping[str, np.ndarray]


class Opinion(NamedTuple):
    """A disagreement; places: source files of what is shared."""

    what: str
    places: tuple[str, ...]


def is_judged(job: Job, trainer: Any) -> bool:
    """Return whether of_loss judges a trainer: in fp64, and in 16 bits where a recorded pass rounds as an update does.

    Margins are not fp32 in 16 bits.
    """
    mode = trainer.mode
    return has_loss(job) and (mode.is_fp64 or (mode.is_mixed and not mode.compile and job.loss.task != "face"))


def has_loss(job: Job) -> bool:
    """Return whether the reference has the loss of a recipe, with all classes."""
    loss = job.loss
    return loss.loss in losses.DEFINED.get(loss.task, ()) and getattr(loss, "sample_rate", 1) == 1


def missing(job: Job) -> list[str]:
    """Return what has no second opinion."""
    sampled = " of sampled classes" if getattr(job.loss, "sample_rate", 1) < 1 else ""
    found = [] if has_loss(job) else [f"the loss {job.loss.loss}{sampled}"]
    return found + ([] if job.model in recipe.MODELS else [f"the parameter groups of {job.model}"])


def of_loss(
    job: Job,
    trainer: Any,
    before: State,
    gradients: State,
    device_batches: Sequence[DeviceBatch],
    batches: Sequence[Batch],
    reported: float,
) -> list[str]:
    """Compare the loss of an update with the definition, and in fp64 its gradients.

    The gradient by the outputs, times the change of the outputs along the gradient by the parameters, is the square of
    the latter's length, divided by the length of the step.

    Args:
        before: weights and running statistics before the update. The trainer gets its state back.
        reported: the loss of the update, over all ranks.
    """
    gradients = {name: np.asarray(value, np.float64) for name, value in gradients.items()}
    weights = {name: np.asarray(before[name], np.float64) for name in gradients}
    whole = _whole(job, trainer, gradients), _whole(job, trainer, weights)
    length, size = (math.sqrt(sum(float(np.square(array).sum()) for array in arrays.values())) for arrays in whole)
    unit = length or 1.0
    step = STEP * size / unit
    state, outputs = {key: np.array(value) for key, value in trainer.state_dict().items()}, []
    trainer.load_state_dict(before)
    for factor in (0.0, step, -step):
        trainer.load_state_dict({name: weights[name] + factor * gradients[name] for name in gradients})
        outputs.append([_outputs(job, trainer, batch) for batch in device_batches])
    trainer.load_state_dict(state)
    total = count = slope = 0.0
    averages = None
    for batch, here, ahead, behind in zip(batches, *outputs):
        of_batch, items, by_outputs, of_head, averages = _reference(job, here, batch, whole[1], averages)
        total, count = total + of_batch, count + items
        slope += sum(float((by * (a - b)).sum()) for by, a, b in zip(by_outputs, ahead, behind)) / (2 * step)
        slope += float((of_head * whole[0][HEAD_WEIGHT]).sum()) / job.group.size if of_head is not None else 0.0
    total, count, slope = (sum(job.group.all_gather(float(number))) for number in (total, count, slope))
    found = []
    is_fp64 = trainer.mode.is_fp64
    if not abs(reported - total / count) <= LOSS_TOLERANCE[is_fp64] * abs(total / count):
        found.append(f"the loss of the first update is {reported:.9g}, and by its definition {total / count:.9g}")
    if is_fp64 and not abs(slope / count - length**2) <= SLOPE_TOLERANCE * length**2:
        found.append(
            f"the gradient of the first update does not fit the loss, which grows by {length:.6g} per unit of length "
            f"along it, and by its definition {slope / count / unit:.6g}"
        )
    return found


def _outputs(job: Job, trainer: Trainer, batch: DeviceBatch) -> tuple[np.ndarray, ...]:
    outputs: tuple[np.ndarray, ...]
    outputs = load_backend(job.framework).record_forward(trainer, batch, True, "", lambda *_: None).outputs
    return outputs


def _reference(
    job: Job, outputs: Sequence[np.ndarray], batch: Batch, weights: State, averages: margin.Averages
) -> tuple[Any, Any, list[np.ndarray], np.ndarray | None, margin.Averages]:
    """Return sum of the losses of a micro-batch, its count, the gradients by outputs and class matrix, and averages."""
    loss, labels = job.loss, batch["label"]
    if loss.task in ("classify", "multilabel"):
        total, gradient = losses.classify(outputs[0], batch.get(SOFT_LABEL, labels), loss)
        return total, len(labels), [gradient], None, None
    if loss.task == "segment":
        main, *others = (losses.segment(logits, labels, loss, i > 0) for i, logits in enumerate(outputs))
        total = main[0] + sum(loss.aux_weight * other[0] for other in others)
        return total, main[1], [main[2], *(loss.aux_weight * other[2] for other in others)], None, None
    rank, ranks, count = job.group.rank, job.group.size, len(labels)
    embeddings, labels = (_of_ranks(job, array, rank * count, ranks * count) for array in (outputs[0], labels))
    total, gradient, of_head = margin.loss_and_gradients(embeddings, weights[HEAD_WEIGHT], labels, loss, averages)
    if loss.loss == "adaface":
        averages = margin.moved(averages, np.linalg.norm(embeddings, axis=1), loss)
    return total / ranks, count, [gradient[rank * count : (rank + 1) * count]], of_head, averages


def _of_ranks(job: Job, array: np.ndarray, first: int, count: int) -> np.ndarray:
    """Return `count` rows, of which this rank has some, from `first` on."""
    rows = np.zeros((count, *array.shape[1:]), array.dtype)
    rows[first : first + len(array)] = array
    return job.group.sum({"rows": rows})["rows"]


def _whole(job: Job, trainer: Trainer, tensors: State) -> State:
    """Return tensors with the rows of all ranks."""
    sharded = {param.name: param for param in trainer.params if param.rows and param.name in tensors}
    rows = {
        name: _of_ranks(job, tensors[name], param.rows[0], param.shape[0])
        for name, param in sharded.items()
        if param.rows
    }
    return {**tensors, **rows}


def of_recipe(job: Job, cfg: Config) -> list[Opinion]:
    """Compare schedule, parameter groups, class weights and metrics with their definitions."""
    found = [Opinion(what, ("zoo/run/schedule.py", "zoo/optim/schedules.py")) for what in _rates(job, cfg)]
    if job.model in recipe.MODELS:
        places = (f"zoo/models/{job.model}/spec.py", "zoo/run/job.py")
        found += [Opinion(what, places) for what in _groups(job, cfg)]
    found += [Opinion(what, ("zoo/run/dataset.py", "zoo/data/order.py")) for what in _class_weights(job, cfg)]
    if has_loss(job):
        found += [
            Opinion(what, ("zoo/trainer/objectives.py",)) for what in of_precision(job.loss, job.arch.num_classes)
        ]
    if job.loss.task in METRICS:
        places = (f"zoo/tasks/{job.loss.task}.py", "zoo/run/evaluation.py")
        found += [Opinion(what, places) for what in of_metric(job.task, cfg.task, job.group)]
        found += [Opinion(what, places[:1]) for what in of_output(job.task, cfg.task)]
    return found


def _rates(job: Job, cfg: Config) -> list[str]:
    """Compare the length of the run, and the learning rates of up to MAX_RATES updates."""
    samples, ranks = len(job.train_set), job.group.size
    steps = recipe.updates(cfg.train, samples, ranks)
    if job.clock.steps != steps:
        return [f"the run has {job.clock.steps} updates, and by its definition {steps}"]
    rate = recipe.learning_rate(cfg.optim, cfg.train, samples, ranks)
    for step in sorted({*range(min(steps, MAX_RATES // 2)), *range(0, steps, max(1, 2 * steps // MAX_RATES))}):
        found, expected = job.lr(step), rate(step)
        if not abs(found - expected) <= RATE_TOLERANCE * max(abs(expected), cfg.optim.lr):
            return [f"the learning rate of update {step + 1} is {found:.9g}, and by the recipe's keys {expected:.9g}"]
    return []


def _groups(job: Job, cfg: Config) -> list[str]:
    params = [param for param in job.trainer.params if not param.is_statistic]
    names = {param.name for param in job.trainer.params}
    found = []
    for param in params:
        expected = recipe.param_group(job.model, job.arch, cfg.optim, param.name, len(param.shape), names)
        group = job.plan.param_group(param.name)
        if not np.allclose(group, expected, rtol=1e-12, atol=0):
            found.append(
                f"{param.name} has the learning rate x {group.lr_scale:g} and the weight decay {group.weight_decay:g}, "
                f"and by the recipe's keys x {expected[0]:g} and {expected[1]:g}"
            )
    return [f"{found[0]}; it is the first of {len(found)} parameters"] if found else []


def _class_weights(job: Job, cfg: Config) -> list[str]:
    given, used = (getattr(task, "class_weights", None) for task in (cfg.task, job.loss))
    if given == "balanced":
        drawn = np.random.default_rng(0).integers(0, 3, 20)  # a third of the classes has no sample
        if not np.allclose(balanced_class_weights(drawn, 25), recipe.balanced_weights(drawn.tolist(), 25)):
            return ["balanced class weights are not by their definition where a class has no sample"]
        counts, balance = job.train_set.inventory(False).counts(), getattr(job.train_set.settings, "balance", 0.0)
        given = recipe.balanced_weights(order.per_epoch(counts, balance).tolist(), job.arch.num_classes)
    if given is None or used is None:
        return [] if given is used else ["there are class weights where the recipe has none"]
    if len(given) == len(used) and np.allclose(given, used, rtol=1e-9):
        return []
    return [f"the class weights are {_some(used)}, and by their definition {_some(given)}"]


def _some(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers[:4]) + (" ..." if len(numbers) > 4 else "")


def of_precision(loss: Any, classes: int) -> list[str]:
    """Compare the loss of outputs in fp16 with that of the same numbers in fp32, in which both are computed."""
    rng, shape = np.random.default_rng(0), (6, classes, 5, 7) if loss.task == "segment" else (6, classes)
    labels = {
        "classify": rng.integers(0, classes, 6),
        "multilabel": rng.integers(0, 2, shape).astype(np.float32),
        "segment": rng.integers(0, classes, (6, 5, 7)).astype(np.uint8),
    }
    if loss.task not in labels:  # the objective of faces is a framework's own
        return []
    objective = find_objective(loss.task)(numpy_ops, loss, None, np.float32, np.float64)
    for heads in (1, 2) if loss.task == "segment" else (0,):
        outputs = [rng.standard_normal(shape).astype(np.float16) for _ in range(max(heads, 1))]
        wide = [each.astype(np.float32) for each in outputs]
        totals = [objective.total(each if heads else each[0], labels[loss.task]) for each in (outputs, wide)]
        if totals[0] != totals[1]:
            return ["the loss of outputs in 16 bits is not computed in fp32"]
    return []


def of_metric(task: Any, settings: Any, group: Group) -> list[str]:
    """Evaluate predictions that are drawn at random, on all ranks, and compare the metrics with a plain count."""
    rng = np.random.default_rng(0)
    drawn, other = (METRICS[settings.task](settings, rng) for _ in range(2))
    outputs = {False: drawn.outputs, True: other.outputs}
    metric, averaged = (task.Metric(drawn.dataset, settings) for _ in range(2))
    batches = _batches(drawn, group.rank, group.size)
    model: Any = _Drawn(outputs)
    found = evaluate(model, batches, drawn.dataset, metric, group, lambda sample: None, averaged)
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
    """Compare predictions of a model that looks at single pixels, with mirror images and windows."""
    if settings.task in ("classify", "multilabel"):
        return []
    pixels = np.random.default_rng(0).integers(0, 256, (2, 11, 14, 3)).astype(np.float64)
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


BATCH = 9  # of a random split, on each rank


def _batches(drawn: _Random, rank: int, ranks: int) -> Generator[LoadedBatch, None, None]:
    """Yield the batches of a rank, as many as the others have; padding has the rows of the last sample."""
    rows, views = drawn.outputs.shape[:2]
    for first in range(0, rows, ranks * BATCH):
        part = first + rank * BATCH + np.arange(BATCH)
        kept = np.minimum(part, rows - 1)
        row = kept[:, None] * views + np.arange(views)
        batch = {name: array[kept] for name, array in drawn.batch.items()}
        yield {**batch, "row": row if views > 1 else row[:, 0], "valid": (part < rows).astype(np.uint8)}, []


def _dataset(views: int, **attributes: Any) -> Any:
    fields, settings = (Field("row", (), "int64", mean=(0.0,), std=(1.0,)),), SimpleNamespace(eval_bad="error")
    return SimpleNamespace(views=views, fields=fields, settings=settings, **attributes)


def _classify(settings: Any, rng: np.random.Generator) -> _Random:
    rows, views, classes = 41, 2, 8
    logits, labels = rng.integers(-6, 7, (rows, views, classes)) / 4, rng.integers(-1, classes, rows)  # with ties
    dataset = _dataset(views, classes=range(classes))
    return _Random(dataset, logits, {"label": labels}, lambda outputs: metrics.classify(outputs, labels, classes))


def _multilabel(settings: Any, rng: np.random.Generator) -> _Random:
    rows, views, classes = 41, 2, 5
    logits, labels = rng.integers(-6, 7, (rows, views, classes)) / 4, rng.integers(0, 2, (rows, classes))  # with ties
    labels[:, 0], labels[rng.random(rows) < 0.1] = 0, -1  # a class that no sample has, and unreadable samples
    dataset = _Rows(**vars(_dataset(views, classes=range(classes), rows=rows)))
    batch = {"label": labels.astype(np.float32), "index": np.arange(rows)}
    return _Random(dataset, logits, batch, lambda outputs: metrics.multilabel(outputs, labels, classes))


def _segment(settings: Any, rng: np.random.Generator) -> _Random:
    rows, classes = 13, 6
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
    dataset = _Rows(**vars(_dataset(2, sets=(("first", 0, 23), ("second", 23, 30)), rows=53)))
    labels = rng.integers(0, 2, len(dataset))
    first, noise = (rng.standard_normal((len(dataset), 2, 4)) for _ in range(2))
    outputs = np.stack([first, np.where(labels[:, None, None] > 0, first, 0) + noise], 1)
    batch = {"label": labels, "index": np.arange(len(dataset))}
    return _Random(dataset, outputs, batch, lambda outputs: metrics.face(outputs, labels, dataset.sets, settings.far))


METRICS = {"classify": _classify, "multilabel": _multilabel, "segment": _segment, "face": _face}
