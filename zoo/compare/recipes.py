"""A second opinion on what updates take from a recipe: rates, groups, settings, class weights, and shared formulas."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from zoo.compare.reference import margin, recipe
from zoo.config.schema import Config
from zoo.run.dataset import balanced_class_weights
from zoo.run.job import Job
from zoo.trainer import numpy_ops
from zoo.trainer.objectives import find_objective
from zoo.trainer.sharding import choose_active_rows
from zoo.trainer.state import ema_key
from zoo.trainer.update import updated

RATE_TOLERANCE = 1e-9  # relative, of a learning rate
MAX_RATES = 2000  # learning rates that are compared
FIRST_SCALE = 65536.0  # loss scale of torch.amp.GradScaler


def rates(job: Job, cfg: Config) -> list[str]:
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


def settings(job: Job, cfg: Config) -> list[str]:
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


def first_averages(job: Job) -> list[str]:
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


def groups(job: Job, cfg: Config) -> list[str]:
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


def class_weights(job: Job, cfg: Config) -> list[str]:
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
