"""The table of `zoo train --plan`: batch, learning rate and lengths of a recipe for numbers of processes."""

import math
import os
from collections.abc import Callable, Iterable, Sequence

from zoo import data
from zoo.config.schema import Config, Duration, Optim, Train
from zoo.distributed.launchers import read_world
from zoo.optim.schedules import SCHEDULES
from zoo.run import schedule
from zoo.run.request import Request
from zoo.table import table as aligned

UNKNOWN = "-"


def table(request: Request, worlds: str) -> str:
    """Return facts of a recipe, and a column of numbers for each number of processes.

    Epochs are those of the data where they are, else of the published run that the recipe repeats.

    Args:
        worlds: numbers of processes, such as 8, or hosts x processes, such as 4x8, separated by commas.
    """
    cfg, dataset = request.config, request.resolved["data.name"].value
    names = [world.strip() for world in worlds.lower().split(",")]
    plans = [schedule.batch_plan(cfg.train, math.prod(read_world(name, "--plan"))) for name in names]
    samples, origin = _samples(cfg, dataset)
    rows = [*_batch_rows(cfg, plans), *_length_rows(cfg, plans, samples)]
    lines = [f"{request.recipe}: {cfg.framework}, {dataset}, {origin}", *_facts(cfg)]
    lines += aligned([(name, *values) for name, values in rows], ("processes", *names))
    return "\n".join(lines) + "\n"


def _samples(cfg: Config, dataset: str) -> tuple[int | None, str]:
    root = getattr(cfg.data, "root", None)
    if root is None or os.path.isdir(root):
        train_set, _ = data.find(dataset).load(cfg.data)
        return len(train_set), f"{len(train_set)} training samples"
    if cfg.upstream and cfg.upstream.train_samples:
        return cfg.upstream.train_samples, f"{cfg.upstream.train_samples} training samples as upstream"
    return None, f"no data at {root}"


def _facts(cfg: Config) -> Iterable[str]:
    """Return what does not depend on the number of processes."""
    train, optim = cfg.train, cfg.optim
    target = UNKNOWN if cfg.target is None else f"{cfg.target:g}"
    yield f"precision {_precision(train, optim)}; target {target}"
    shape = SCHEDULES[optim.schedule].describe(optim, "epochs" if train.epochs else "steps")
    yield f"learning rate {shape}; warm-up {optim.warmup if optim.warmup.value else 'none'}"
    yield f"evaluation every {train.eval_every}; log every {train.log_every}; {cfg.data.workers} workers per process"


def _precision(train: Train, optim: Optim) -> str:
    name = train.precision + (f" ({train.amp_level})" if train.amp_level else "")
    if train.precision not in ("amp", "fp16"):
        return name
    if optim.loss_scale != "dynamic":
        return f"{name}, static loss scale {optim.loss_scale:g}"
    start = f" from {optim.initial_loss_scale:g}" if optim.initial_loss_scale else ""
    return f"{name}, dynamic loss scale{start}"


def _batch_rows(cfg: Config, plans: Sequence[schedule.BatchPlan]) -> list[tuple[str, list[str]]]:
    rates = [schedule.base_lr(cfg.optim, plan.total) for plan in plans]
    return [
        ("batch per process", [str(plan.batch) for plan in plans]),
        ("micro-batches", [str(plan.accumulate) for plan in plans]),
        ("global batch", [str(plan.total) for plan in plans]),
        ("learning rate", [f"{rate:.6g}" for rate in rates]),
    ]


def _length_rows(cfg: Config, plans: Sequence[schedule.BatchPlan], samples: int | None) -> list[tuple[str, list[str]]]:
    """Return lengths of the run and of its parts; those that follow from an unknown number of samples are not known."""
    train, optim = cfg.train, cfg.optim
    clocks = [schedule.clock(train, samples or 1, plan.ranks) for plan in plans]
    for each in clocks if samples else ():
        schedule.lr_schedule(optim, train, each)  # raises UserError

    def row(known: bool, number: Callable[[schedule.Clock], float]) -> list[str]:
        return [_number(number(each)) if known or samples else UNKNOWN for each in clocks]

    def steps(duration: Duration) -> list[str]:
        if duration.unit == "steps":
            return row(True, lambda _: float(duration.value))
        return row(False, lambda each: float(duration.value) * each.samples / each.global_batch)

    return [
        ("steps per epoch", row(False, lambda each: each.samples / each.global_batch)),
        ("steps", row(train.steps is not None, lambda each: each.steps)),
        ("epochs", row(train.epochs is not None, lambda each: train.epochs or float(each.epochs(each.steps)))),
        ("steps of warm-up", row(optim.warmup.unit == "steps", lambda each: schedule.warmup_steps(optim, each))),
        ("steps per evaluation", steps(train.eval_every)),
    ]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"
