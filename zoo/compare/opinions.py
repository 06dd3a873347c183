"""A second opinion on what all frameworks share, by zoo/compare/reference: beside it, a slip in shared code shows.

Losses of other packages, and what else the reference does not have, are listed as missing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from zoo.compare import evaluations
from zoo.compare.reference import losses, margin, recipe
from zoo.config.schema import Config
from zoo.data.batch import SOFT_LABEL, Batch
from zoo.run.dataset import balanced_class_weights
from zoo.run.job import Job
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import load_backend, numpy_ops
from zoo.trainer.objectives import find_objective
from zoo.trainer.protocol import DeviceBatch, Trainer
from zoo.trainer.sharding import choose_active_rows
from zoo.trainer.state import ema_key
from zoo.trainer.update import updated

LOSS_TOLERANCE = {True: 1e-9, False: 1e-5}  # relative, of a loss, by whether it is in fp64; in 16 bits it is in fp32
# Of the weights' length, along the gradient, in fp64. Outputs change in proportion to it, but for ReLUs that open or
# close: with 1e-9, slopes of MobileNetV2 were off by 2e-4. With 1e-11, rounding is 2e-7 in nets of ResNet-50's depth.
STEP = 1e-11
SLOPE_TOLERANCE = 1e-4  # relative
RATE_TOLERANCE = 1e-9  # relative, of a learning rate
MAX_RATES = 2000  # learning rates that are compared
FIRST_SCALE = 65536.0  # loss scale of torch.amp.GradScaler
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
    found = [Opinion(what, ("zoo/run/schedule.py", "zoo/optim/schedules.py")) for what in _rates(job, cfg)]
    if job.model in recipe.MODELS:
        places = (f"zoo/models/{job.model}/spec.py", "zoo/run/job.py")
        found += [Opinion(what, places) for what in _groups(job, cfg)]
    found += [Opinion(what, ("zoo/run/job.py", f"zoo/models/{job.model}/spec.py")) for what in _plan(job, cfg)]
    found += [Opinion(what, ("zoo/trainer/update.py",)) for what in of_loss_scale()]
    if job.plan.ema:
        found += [Opinion(what, ("zoo/run/resume.py", "zoo/trainer/state.py")) for what in _first_averages(job)]
    if job.loss.loss == "adaface":
        found += [Opinion(what, ("zoo/losses/face/adaface.py",)) for what in of_quality(job.loss)]
    if getattr(job.loss, "sample_rate", 1) < 1:
        found += [Opinion(what, ("zoo/trainer/sharding.py",)) for what in of_sampling(job.loss.sample_rate)]
    found += [Opinion(what, ("zoo/run/dataset.py", "zoo/data/order.py")) for what in _class_weights(job, cfg)]
    if has_loss(job):
        found += [
            Opinion(what, ("zoo/trainer/objectives.py",)) for what in of_precision(job.loss, job.arch.num_classes)
        ]
    if job.loss.task in evaluations.METRICS:
        own = f"zoo/tasks/{job.loss.task}.py"
        found += [
            Opinion(what, (own, "zoo/run/evaluation.py", "zoo/data/stream.py"))
            for what in evaluations.of_metric(job.task, cfg.task, job.group)
        ]
        found += [Opinion(what, (own,)) for what in evaluations.of_output(job.task, cfg.task)]
    return found


def _rates(job: Job, cfg: Config) -> list[str]:
    """Compare the length of the run, and the learning rates of up to MAX_RATES updates."""
    samples, ranks = len(job.train_set), job.group.size
    steps = recipe.updates(cfg.train, samples, ranks)
    if job.clock.steps != steps:
        return [f"the run has {job.clock.steps} updates, and by its definition {steps}"]
    rate = recipe.learning_rate(cfg.optim, cfg.train, samples, ranks)
    compared = {*range(min(steps, MAX_RATES // 2)), *range(0, steps, max(1, 2 * steps // MAX_RATES)), steps - 1}
    if cfg.optim.schedule == "step":
        compared |= _edges(rate, sorted(compared))
    for step in sorted(compared):
        found, expected = job.lr(step), rate(step)
        if not abs(found - expected) <= RATE_TOLERANCE * max(abs(expected), cfg.optim.lr):
            return [f"the learning rate of update {step + 1} is {found:.9g}, and by the recipe's keys {expected:.9g}"]
    return []


def _edges(rate: Callable[[int], float], steps: Sequence[int]) -> set[int]:
    """Return the updates between some before and behind which a learning rate that is constant in parts changes."""
    found = set()
    for before, behind in pairwise(steps):
        while behind - before > 1 and rate(before) != rate(behind):
            middle = (before + behind) // 2
            before, behind = (middle, behind) if rate(middle) == rate(before) else (before, middle)
        found |= {before, behind}
    return found


def _plan(job: Job, cfg: Config) -> list[str]:
    """Compare what a compiled update is made of with the recipe's keys."""
    train, optim, plan = cfg.train, cfg.optim, job.plan
    is_dynamic = optim.loss_scale == "dynamic"
    expected: dict[str, Any] = {
        "optimizer": optim,
        "ema": None if train.ema is None else (train.ema, train.ema_warmup),
        "loss_scale": (optim.initial_loss_scale or FIRST_SCALE) if is_dynamic else optim.loss_scale,
        "dynamic_loss_scale": is_dynamic,
        "clip_norm": optim.clip_norm,
        "clip_sharded": optim.clip_sharded,
        "sync_bn": train.sync_bn,
        "fp16_allreduce": train.fp16_allreduce,
        "shard_optimizer": train.shard_optimizer,
        "eval_mixed": train.eval_precision == "amp" and plan.mode.is_mixed,
        "seed": cfg.seed,
    }
    if job.model in recipe.MODELS:
        expected["fp32_modules"] = recipe.FP32_MODULES.get(job.model, ())
    found = {**vars(plan), "ema": plan.ema and (plan.ema.decay, plan.ema.warmup)}
    return [
        f"an update is compiled with {key} {found[key]}, and by the recipe's keys it is {value}"
        for key, value in expected.items()
        if found[key] != value
    ][:1]


def of_loss_scale() -> list[str]:
    """Compare a dynamic loss scale and its counters, of any size, with torch.amp.GradScaler's."""
    for scale, good, consecutive in product(2.0 ** np.arange(-20, 41, 5), (0, 7, 1998, 1999), (0, 3)):
        state = tuple(np.float32(number) for number in (scale, good, 11, consecutive))
        grows = good == 1999
        expected = {True: (scale * (1 + grows), 0 if grows else good + 1, 11, 0)}
        expected[False] = scale / 2, 0, 12, consecutive + 1
        for finite, numbers in expected.items():
            found = updated(numpy_ops, state, np.bool_(finite), True)
            if tuple(map(float, found)) != numbers:
                lists = [", ".join(f"{number:g}" for number in each) for each in (state, found, numbers)]
                return [
                    f"scale, good, skipped and consecutive skipped updates {lists[0]} become {lists[1]} instead of "
                    f"{lists[2]} in an update that is {'' if finite else 'not '}finite"
                ]
    return []


def _first_averages(job: Job) -> list[str]:
    """Return a line if the moving averages of a run do not begin with its weights."""
    state = job.trainer.state_dict()
    apart = [
        param.name
        for param in job.trainer.params
        if not np.array_equal(np.array(state[ema_key(param.name)]), np.array(state[param.name]))
    ]
    return [f"the moving average of {apart[0]} does not begin with its weights"] if apart else []


def of_quality(loss: Any) -> list[str]:
    """Compare AdaFace's quality of embeddings, also of those that are longer than a demo's, with its definition."""
    lengths = np.geomspace(1e-4, 1e3, 15)
    found = replace(loss, t_alpha=1.0).quality(numpy_ops, lengths, ())
    is_right = np.allclose(found, margin.quality(None, lengths, replace(loss, t_alpha=1.0)), rtol=1e-9)
    return [] if is_right else ["the quality of embeddings of AdaFace is not by its definition"]


def of_sampling(rate: float) -> list[str]:
    """Compare the rows that an update uses of a class matrix with what Partial FC says of them."""
    size, drawn = 200, set()
    for labels, seed, step in product((6, 190), (0, 1), (0, 1)):
        wanted = np.random.default_rng(0).integers(-1, size, labels)
        rows = choose_active_rows(wanted, size, rate, seed, 0, step)
        count = min(size, max(int(rate * size), labels))
        if len(rows) != count or (np.diff(rows) <= 0).any() or not {*wanted.tolist()} - {-1} <= {*rows.tolist()}:
            return ["the sampled classes are not those of the batch and others, each once"]
        drawn.add((labels, rows.tobytes()))
    return [] if len(drawn) == 8 or rate * size > size - 1 else ["sampled classes do not depend on seed and update"]


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
        given = recipe.balanced_weights(recipe.shown(counts.tolist(), balance), job.arch.num_classes)
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
