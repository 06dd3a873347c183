"""Check of updates and moving averages against their definitions, by the framework's own gradients.

So each framework is checked alone. An optimizer of a package has no definition here, but its formula over numpy.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.compare.reference import optimizers
from zoo.optim import sgd, sgd_nesterov
from zoo.optim.base import Math
from zoo.optim.ema import Ema
from zoo.trainer import numpy_ops
from zoo.trainer.plan import Plan
from zoo.trainer.state import EMA_PREFIX, slot_key

ROUNDING = 16  # largest deviation that rounding alone explains, in units of the precision and of the largest term
SHARE_ROUNDING = 4  # the same for the sum of many deviations, which are independent: several standard deviations
SHARE = 1e-3  # of a term: a smaller deviation is not looked for below the rounding of a single element
NUDGE = 1e-3  # relative change of an input, which shows what a result owes to it
NORM_ROUNDING = {"fp64": 1e-9, "fp32": 1e-3, "fp16": 1e-1, "bf16": 1e-1}  # relative, of a norm of all gradients
NORM_SAFETY = 4.0  # a norm without the shards, which is not reported, may be rounded by that much more
FIT = 1e-4  # largest share of a deviation that a hypothesis leaves unexplained
SLIPS = {
    "coupled": "the weight decay is added to the gradient instead of the update: coupled",
    "uncorrected": "the means are not corrected for their start from 0",
    "plain": "momentum without Nesterov's step ahead",
    "ignored": "the factor of the learning rate is ignored",
}
State = Mapping[str, np.ndarray]


class Inputs(NamedTuple):
    """What an update of a parameter depends on.

    Attributes:
        weight, gradient: before the update; the gradient unscaled and clipped.
        lr: learning rate without the parameter's factor.
        applied: number of the update without those that were skipped, from 1.
    """

    weight: np.ndarray
    gradient: np.ndarray
    slots: tuple[np.ndarray, ...]
    lr: float
    lr_scale: float
    decay: float
    applied: int


def check(
    plan: Plan,
    shards: set[str],
    lr: float,
    before: State,
    after: State,
    gradients: State,
    total_norm: float,
    precision: float,
    norm_rounding: float = 0.0,
    applied: int = 1,
) -> dict[str, dict[str, Any]]:
    """Compare the updates of all parameters with the formula.

    Args:
        plan: its parameter groups, optimizer and clipping.
        total_norm: norm of all gradients, those of other ranks' shards included.
        precision: rounding unit of the arithmetic, such as 2**-52.
        norm_rounding: relative rounding of the framework's own norm, which sums millions of squares.
        applied: number of the update without those that were skipped, from 1.

    Returns:
        By name, of the parameters that deviate: `deviation`, relative to the update; `slot`, that deviates most, "" for
        the parameter itself; `factors`, of `_linear_slips` or `_slips`; `decay`, the expected weight decay; `frozen`,
        whether the parameter should not change.
    """
    clip = clip_factor(plan, shards, gradients, total_norm)
    clip_rounding = NORM_SAFETY * norm_rounding if clip < 1 else 0.0
    has_norms, found = plan.optimizer.uses_norms, {}
    for name, gradient in gradients.items():
        weight = np.asarray(before[name], np.float64)
        if gradient.shape != weight.shape or (has_norms and name in shards):  # the active rows, or a norm of all ranks
            continue
        is_clipped = plan.clip_sharded or name not in shards
        slots = tuple(
            np.asarray(before.get(slot_key(slot, name), np.zeros_like(weight)), np.float64)
            for slot in plan.optimizer.slots
        )
        clipped = gradient * np.float64(clip if is_clipped else 1.0)
        inputs = Inputs(weight, clipped, slots, lr, *plan.param_group(name), applied)
        keys = [slot_key(slot, name) for slot in plan.optimizer.slots]
        new_slots = [np.asarray(after[key], np.float64) for key in keys if key in after]
        results = (np.asarray(after[name], np.float64) - weight, *new_slots)
        sum_rounding = precision * plan.optimizer.sum_rounding(weight)
        found.update(_deviation(plan.optimizer, name, inputs, results, precision, clip_rounding + sum_rounding))
    return found


def norm(gradients: State) -> float:
    """Return the L2 norm of all gradients."""
    return math.sqrt(sum(float(np.square(value, dtype=np.float64).sum()) for value in gradients.values()))


def norm_rounding(own: float, reported: float, precision: str) -> float:
    """Return the relative rounding of a framework's norm; 0 if it is wrong, which is another finding."""
    rounding = abs(own - reported) / own if own else 0.0
    return rounding if rounding <= NORM_ROUNDING[precision] else 0.0


def clip_factor(plan: Plan, shards: set[str], gradients: State, total_norm: float) -> float:
    """Return what clipping multiplies the gradients by."""
    if plan.clip_norm is None:
        return 1.0
    if not plan.clip_sharded:
        total_norm = norm({name: value for name, value in gradients.items() if name not in shards})
    return min(1.0, plan.clip_norm / max(total_norm, 1e-300))


def check_averages(spec: Ema, before: State, after: State, precision: float, applied: int) -> dict[str, dict[str, Any]]:
    """Compare the moving averages of weights and statistics after an update with the formula.

    Args:
        precision: rounding unit of the arithmetic, such as 2**-52.
        applied: number of the update without those that were skipped, from 1.

    Returns:
        By name, of the averages that deviate: `deviation`, relative to the largest value, and `cause`, in words.
    """
    is_skipped = float(after["scaler/skipped"]) != float(before["scaler/skipped"])
    rate = 0.0 if is_skipped else optimizers.average_rate(spec.decay, spec.warmup, applied)
    found = {}
    for key in (key for key in after if key.startswith(EMA_PREFIX)):
        name = key.removeprefix(EMA_PREFIX)
        weight, old, new = (np.asarray(array, np.float64) for array in (after[name], before[key], after[key]))
        largest = max(map(_largest, (weight, old, new)))
        error, share = new - (old + rate * (weight - old)), rate * (weight - old)
        is_small = _largest(error) <= ROUNDING * precision * largest
        stored = np.maximum(np.abs(old), np.abs(weight))
        if not (is_small and _explains(error, (share,), [share], stored, precision, 0.0)):
            cause = _cause_of_average(spec, rate, weight - old, new - old)
            found[name] = {"deviation": _largest(error) / largest, "cause": cause}
    return found


def _deviation(
    spec: Any,
    name: str,
    inputs: Inputs,
    results: Sequence[np.ndarray],
    precision: float,
    factor_rounding: float,
) -> dict[str, dict[str, Any]]:
    """Compare the change of a parameter and its new slots; return {} if rounding explains the deviations.

    Args:
        factor_rounding: relative rounding of factors that come from norms.
    """
    expected, nudged = _results(spec, inputs), [_results(spec, other) for other in _nudged(inputs)]
    found = {}
    for i, (slot, result) in enumerate(zip(("", *spec.slots), results)):
        shares = [(others[i] - expected[i]) / NUDGE for others in nudged]
        gradient, *others = map(_largest, shares)
        size = max(4 * _largest(expected[i]), gradient + sum(others)) + (0.0 if slot else _largest(inputs.weight))
        tolerance = ROUNDING * precision * size + factor_rounding * max(gradient, _largest(expected[i]))
        error = result - expected[i]
        stored = np.abs(expected[i]) + (0.0 if slot else np.abs(inputs.weight))
        common = (expected[i], inputs.weight) if spec.is_decoupled and not slot else (expected[i],)
        is_explained = _explains(error, common, shares, stored, precision, factor_rounding)
        if not (_largest(error) <= tolerance and is_explained):
            found[slot] = _largest(error) / max(_largest(expected[i]), _largest(result), 1e-300), tolerance
    if not found:
        return {}
    slot = "" if "" in found else next(iter(found))
    deviation, tolerance = found[slot]
    factors = _linear_slips if spec.is_linear else _slips
    return {
        name: {
            "deviation": deviation,
            "slot": slot,
            "factors": {} if slot else factors(spec, inputs, results[0], tolerance),
            "decay": inputs.decay,
            "frozen": inputs.lr_scale == 0,
        }
    }


def _explains(
    error: np.ndarray,
    common: Sequence[np.ndarray],
    shares: Sequence[np.ndarray],
    stored: np.ndarray,
    precision: float,
    factor_rounding: float,
) -> bool:
    """Return whether rounding explains an error's part along each share, even one below the rounding of an element.

    Rounding is independent from element to element, and that of a factor which they have in common is small, such as
    1 - lr * decay where decay is decoupled, while a wrong factor of a term adds up over all of them.

    Args:
        common: what may be multiplied by a rounded factor: the right result, the weight.
        shares: what the result owes to each input; the first to the gradient, which a rounded norm may have clipped.
        stored: size of what is rounded beside the shares.
    """
    size = stored + sum(map(np.abs, shares))
    for share in shares:
        along = [abs(float((x * share).sum())) for x in (*common, shares[0])]
        rounding = math.sqrt(float(np.square(share * size).sum())) + sum(along[:-1])
        limit = SHARE_ROUNDING * precision * rounding + factor_rounding * sum(along)
        limit += SHARE * float(np.square(share).sum())
        if not abs(float((error * share).sum())) <= limit:
            return False
    return True


def _results(spec: Any, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """Return the change of a parameter and its new slots, by the formula."""
    step, slots = _direction(spec, inputs)
    return -inputs.lr * inputs.lr_scale * step, *slots


def _nudged(inputs: Inputs) -> Iterator[Inputs]:
    """Yield the inputs of an update with a little more of one: the gradient, the decay, a slot."""
    more = 1 + NUDGE
    yield inputs._replace(gradient=inputs.gradient * more)
    yield inputs._replace(decay=inputs.decay * more)
    for i, slot in enumerate(inputs.slots):
        yield inputs._replace(slots=(*inputs.slots[:i], slot * more, *inputs.slots[i + 1 :]))


def _direction(spec: Any, inputs: Inputs) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return what the learning rate multiplies in the optimizer's formula, and the new slots."""
    if spec.name in optimizers.DIRECTIONS:
        return optimizers.direction(spec, *inputs[:3], inputs.decay, inputs.applied)
    return spec.direction(Math(numpy_ops), *inputs[:3], inputs.decay, inputs.applied)


def _terms(spec: Any, inputs: Inputs) -> list[np.ndarray]:
    """Return the shares of gradient, decay and momentum in the direction of an optimizer that is linear in them."""
    zero = np.zeros_like(inputs.weight)
    nothing = inputs._replace(gradient=zero, slots=(zero,), decay=0.0)
    alone = ({"gradient": inputs.gradient}, {"decay": inputs.decay}, {"slots": inputs.slots})
    return [_direction(spec, nothing._replace(**part))[0] for part in alone]


def _slips(spec: Any, inputs: Inputs, update: np.ndarray, tolerance: float) -> dict[str, float]:
    """Return the slips that explain a change of the weight, each with the factor 1: the formula of other inputs."""
    coupled = inputs._replace(gradient=inputs.gradient + inputs.decay * inputs.weight, decay=0.0)
    others = {"ignored": (spec, inputs._replace(lr_scale=1.0))} if inputs.lr_scale != 1 else {}
    if spec.is_decoupled:
        others |= {"coupled": (spec, coupled), "uncorrected": (spec, inputs._replace(applied=1 << 40))}
    return {slip: 1.0 for slip, other in others.items() if _largest(_results(*other)[0] - update) <= tolerance}


def _linear_slips(spec: Any, inputs: Inputs, update: np.ndarray, tolerance: float) -> dict[str, float]:
    """Find hypotheses that explain an update by an optimizer that is_linear with a single factor.

    Returns:
        The factor of each hypothesis that fits: of the learning rate, the momentum, the gradient, of gradient and decay
        together (dampening), and of the weight (decay).
    """
    rate = inputs.lr * (inputs.lr_scale or 1.0)
    gradient, decay, momentum = _terms(spec, inputs)
    zero, momentum_factor = np.zeros_like(update), getattr(spec, "momentum", 0.0)
    candidates = {
        slip: (zero, _direction(kind.Settings(momentum=momentum_factor), inputs)[0])
        for slip, kind in {"nesterov": sgd_nesterov, "plain": sgd}.items()
        if momentum_factor and not issubclass(type(spec), kind.Settings)
    }
    candidates |= {
        "lr": (zero, gradient + decay + momentum),
        "momentum": (gradient + decay, momentum),
        "decay": (gradient + momentum, inputs.weight),
        "gradient": (decay + momentum, gradient),
        "dampening": (momentum, gradient + decay),
    }
    unexplained = FIT * _largest(update - _results(spec, inputs)[0]) / rate
    found = {}
    for kind, (fixed, free) in candidates.items():
        rest, power = -update / rate - fixed, float(np.square(free).sum())
        factor = float((free * rest).sum()) / power if power else 0.0
        is_exact = _largest(rest - factor * free) <= unexplained
        if is_exact and (kind not in ("nesterov", "plain") or abs(factor - 1) < FIT):
            found[kind] = factor
    return found


def _cause_of_average(spec: Ema, rate: float, way: np.ndarray, step: np.ndarray) -> str:
    """Return what explains a step of the average on the way to the weight."""
    power = float(np.square(way).sum())
    found = float((way * step).sum()) / power if power else 0.0
    if power and _largest(step - found * way) > FIT * _largest(way):
        return ""
    if rate == 0:
        return "it changes although the update was skipped"
    causes = {
        "it stays as it was": 0.0,
        "it is a copy of what it averages": 1.0,
        "decay and 1 - decay are swapped": 1 - rate,
        "there is no warm-up": 1 - spec.decay,
    }
    close = (cause for cause, other in causes.items() if abs(found - other) <= FIT * rate)
    return next(close, f"its rate is {found:.2g} instead of {rate:.2g}")


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0))
