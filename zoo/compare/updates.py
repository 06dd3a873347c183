"""One update of the proof: what it records, and the updates whose gradients are not finite."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.compare import formulas
from zoo.compare.reference import optimizers
from zoo.parity.record import ROUNDING_UNITS, Record
from zoo.run.job import Job
from zoo.trainer.protocol import DeviceBatch, Trainer
from zoo.trainer.state import EMA_PREFIX, OBJECTIVE_PREFIX, ema_key, slot_key, statistic_key
from zoo.trainer.update import GOOD_STEPS_KEY, KEYS, SCALE_KEY, SKIPPED_KEY

SCALE = 2.0**10  # loss scale of updates that would have none: no bit changes unless it is forgotten somewhere
LARGEST = float(np.finfo(np.float32).max)


def reload(trainer: Any, micro_batches: Sequence[DeviceBatch], lr: float, number: int) -> None:
    """Load the trainer's own state after an update of other weights: what is not loaded or computed anew is theirs."""
    state = {key: np.array(value) for key, value in trainer.state_dict().items()}
    others = {param.name: -state[param.name] for param in trainer.params if not param.is_statistic}
    trainer.load_state_dict({**state, **others})
    trainer.step(micro_batches, lr, number)
    while state[SCALE_KEY] > 1:  # until the gradients are finite
        trainer.load_state_dict(state)
        if np.isfinite(trainer.read(trainer.step(micro_batches, lr, number))["grad_norm"]):
            break
        state[SCALE_KEY] /= 2
    if number:
        state[SKIPPED_KEY] += 1  # as if one before had been skipped
    if number or trainer.mode.compute == "fp32":  # whose first update is compared with that in fp64, without a scale
        state[SCALE_KEY] = np.maximum(state[SCALE_KEY], np.float32(SCALE))
    trainer.load_state_dict(state)


def add_update(
    result: Record,
    job: Job,
    trainer: Trainer,
    micro_batches: Sequence[DeviceBatch],
    lr: float,
    number: int,
    title: str = "",
    is_kept: bool = True,
) -> None:
    """Run one update and record the optimizer's deviations and, if it is kept, gradients and changes of all tensors."""
    before = trainer.state_dict()
    before = {key: np.array(value, np.float64) for key, value in before.items()}
    numbers = trainer.read(trainer.step(micro_batches, lr, number))
    numbers["loss"] = sum(job.group.all_gather(numbers["loss"]))  # of the ranks' shares
    after, gradients = trainer.state_dict(), trainer.gradients()
    shards = {param.name for param in trainer.params if param.rows}
    plan: Any = trainer.plan  # type: ignore[attr-defined]
    prefix = title or f"update {number + 1}"
    if is_kept:
        _add_tensors(result, trainer, prefix, before, after, gradients)
        result.add(f"{prefix}/loss", np.array(numbers["loss"]))
        result.add(f"{prefix}/grad_norm", np.array(numbers["grad_norm"]))
    norm = _norm(job, gradients, shards)
    # Parameters and slots are fp32 in 16 bits, too.
    unit = min(ROUNDING_UNITS[result.precision], ROUNDING_UNITS["fp32"])
    rounding = formulas.norm_rounding(norm, numbers["grad_norm"], result.precision)
    _check_loss_scale(result, plan, prefix, before, after, numbers["grad_norm"])
    applied = number + 1 - round(float(before["scaler/skipped"]))
    deviations = formulas.check(plan, shards, lr, before, after, gradients, norm, unit, rounding, applied)
    result.steps.append(
        {
            "title": prefix,
            "lr": lr,
            "loss": numbers["loss"],
            "grad_norm": numbers["grad_norm"],
            "norm_of_gradients": norm,
            "deviations": deviations,
            "averages": formulas.check_averages(plan.ema, before, after, unit, applied) if plan.ema else {},
        }
    )


def _norm(job: Job, gradients: formulas.State, shards: set[str]) -> float:
    """Return the norm of all gradients, those of other ranks' shards included."""
    own = formulas.norm({name: value for name, value in gradients.items() if name in shards})
    of_shards = job.group.all_gather(own)
    whole = formulas.norm({name: value for name, value in gradients.items() if name not in shards})
    return math.hypot(whole, *of_shards)


def _add_tensors(
    result: Record, trainer: Any, prefix: str, before: formulas.State, after: formulas.State, gradients: formulas.State
) -> None:
    """Add the gradients of an update, and what it has changed."""
    for name, gradient in gradients.items():
        result.add(f"{prefix}/gradient/{name}", gradient)
    for param in trainer.params:
        kind = "statistic" if param.is_statistic else "change"
        value = np.asarray(after[param.name], np.float64)
        result.add(f"{prefix}/{kind}/{param.name}", value if param.is_statistic else value - before[param.name])
        for slot in trainer.plan.optimizer.slots:
            key = slot_key(slot, param.name)
            if key in after:
                result.add(f"{prefix}/{key}", after[key])
        key = ema_key(param.name)
        if key in after:
            result.add(f"{prefix}/{key}", np.asarray(after[key], np.float64) - before[key])
    for key in (statistic_key(statistic.name) for statistic in trainer.statistics):
        result.add(f"{prefix}/{key}", after[key])


def _check_loss_scale(
    result: Record, plan: Any, title: str, before: formulas.State, after: formulas.State, norm: float
) -> None:
    """Note if loss scale and counters are not those that torch.amp.GradScaler would have after an update."""
    scale, good, skipped = (float(before[key]) for key in KEYS)
    new = [float(after[key]) for key in KEYS]
    expected = optimizers.loss_scale(scale, good, skipped, bool(np.isfinite(norm)), plan.adapts_scale)
    for key, value, other in zip(KEYS, new, expected):
        if value != other:
            what = f"{title}: {key} is {value:g} instead of {other:g}"
            result.settings.setdefault("loss_scale", []).append(what)


def add_skipped_updates(
    result: Record, trainer: Any, micro_batches: Sequence[DeviceBatch], lr: float, number: int, norm: float
) -> None:
    """Run updates whose gradients are not finite: NaN, since a weight is, and of an infinite norm; note what changes.

    The norm is about `norm`, times a loss scale with which it exceeds fp32, while the gradients do not.
    The weight is one of the first layer: Paddle's softmax makes finite gradients of logits that are not, on a CPU.
    Where the loss scale adapts, one more update follows, with which it grows.
    """
    state = {key: np.array(value) for key, value in trainer.state_dict().items()}
    kept = [param.name for param in trainer.params if not param.is_statistic]
    first = kept[0]
    kept += [key for key in state if key.startswith(("optimizer/", EMA_PREFIX, OBJECTIVE_PREFIX))]
    broken = state[first].copy()
    broken.flat[0] = np.nan
    cases = {"nan": {first: broken, GOOD_STEPS_KEY: np.array(7, np.float32)}}
    if result.precision != "fp64":  # where no square overflows
        exponent = math.ceil(math.log2(LARGEST / norm)) + 1 if 0 < norm < LARGEST else 0
        cases["inf"] = {SCALE_KEY: np.array(2.0 ** min(exponent, 127), np.float32)}
    if trainer.plan.adapts_scale:
        cases["growth"] = {GOOD_STEPS_KEY: np.array(optimizers.GROWTH_INTERVAL - 1, np.float32)}
    changed: dict[str, None] = {}
    for title, changes in cases.items():
        before = {**state, **changes}
        trainer.load_state_dict(before)
        norm = trainer.read(trainer.step(micro_batches, lr, number))["grad_norm"]
        after = trainer.state_dict()
        _check_loss_scale(result, trainer.plan, f"update ({title})", before, after, norm)
        if title == "nan" or not np.isfinite(norm):
            of_nan = {ema_key(first)} if title == "nan" else set()  # would be 0 * NaN away
            differ = (key for key in kept if not np.array_equal(before[key], after[key], equal_nan=True))
            changed.update(dict.fromkeys(key for key in differ if key not in of_nan))
    result.settings["changed_by_skipped_update"] = list(changed)
    trainer.load_state_dict(state)
