"""A second opinion on what all frameworks share, by zoo/compare/reference: beside it, a slip in shared code shows.

Losses of other packages, and what else the reference does not have, are listed as missing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.compare import evaluations, recipes
from zoo.compare.reference import losses, margin, recipe
from zoo.config.schema import Config
from zoo.data.batch import SOFT_LABEL, Batch
from zoo.run.job import Job
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import load_backend
from zoo.trainer.protocol import DeviceBatch, Trainer

LOSS_TOLERANCE = {True: 1e-9, False: 1e-5}  # relative, of a loss, by whether it is in fp64; in 16 bits it is in fp32
# Of the weights' length, along the gradient, in fp64. Outputs change in proportion to it, but for ReLUs that open or
# close: with 1e-9, slopes of MobileNetV2 were off by 2e-4. With 1e-11, rounding is 2e-7 in nets of ResNet-50's depth.
STEP = 1e-11
SLOPE_TOLERANCE = 1e-4  # relative
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
    """Compare schedule, parameter groups, settings, loss scale, class weights and metrics with their definitions."""
    loss, spec = job.loss, f"zoo/models/{job.model}/spec.py"
    judged: list[tuple[list[str], tuple[str, ...]]] = [
        (recipes.rates(job, cfg), ("zoo/run/schedule.py", "zoo/optim/schedules.py")),
        (recipes.settings(job, cfg), ("zoo/run/job.py", spec)),
        (recipes.of_loss_scale(), ("zoo/trainer/update.py",)),
        (recipes.class_weights(job, cfg), ("zoo/run/dataset.py", "zoo/data/order.py")),
    ]
    if job.model in recipe.MODELS:
        judged.append((recipes.groups(job, cfg), (spec, "zoo/run/job.py")))
    if job.plan.ema:
        judged.append((recipes.first_averages(job), ("zoo/run/resume.py", "zoo/trainer/state.py")))
    if loss.loss == "adaface":
        judged.append((recipes.of_quality(loss), ("zoo/losses/face/adaface.py",)))
    if getattr(loss, "sample_rate", 1) < 1:
        judged.append((recipes.of_sampling(loss.sample_rate), ("zoo/trainer/sharding.py",)))
    if has_loss(job):
        judged.append((recipes.of_precision(loss, job.arch.num_classes), ("zoo/trainer/objectives.py",)))
    if loss.task in evaluations.METRICS:
        own, places = f"zoo/tasks/{loss.task}.py", ("zoo/run/evaluation.py", "zoo/data/stream.py")
        judged.append((evaluations.of_metric(job.task, cfg.task, job.group), (own, *places)))
        judged.append((evaluations.of_output(job.task, cfg.task), (own,)))
    return [Opinion(what, places) for lines, places in judged for what in lines]
