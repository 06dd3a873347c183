"""Check of an optimizer against its formula, from the framework's own gradients.

SGD with momentum: buffer = momentum * buffer + (clip * gradient + weight_decay * w); w -= lr * lr_scale * buffer.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.optim import sgd
from zoo.optim.base import Math
from zoo.trainer import numpy_ops
from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key

ROUNDING = 16  # largest deviation that rounding alone explains, in units of the precision and of the largest term
NORM_ROUNDING = {
    "fp64": 1e-9,
    "fp32": 1e-3,
    "fp16": 1e-1,
    "bf16": 1e-1,
}  # largest, relative, of a norm of all gradients
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
        slots: in the order of the optimizer.
        lr: learning rate without the parameter's factor.
        lr_scale, decay: of the parameter.
        applied: number of the update without those that were skipped, from 1.
    """

    weight: np.ndarray
    gradient: np.ndarray
    slots: tuple[np.ndarray, ...]
    lr: float
    lr_scale: float
    decay: float
    applied: int


class Terms(NamedTuple):
    """Terms of an update, w1 - w0 = -lr * (gradient + decay + momentum), as the formula has them."""

    lr: float
    gradient: np.ndarray  # clipped
    decay: np.ndarray
    momentum: np.ndarray

    @property
    def update(self) -> np.ndarray:
        """The update by the formula."""
        return -self.lr * (self.gradient + self.decay + self.momentum)


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
        plan: its parameter groups, momentum and clipping.
        shards: names of the sharded parameters.
        lr: learning rate of the update.
        before, after: state dicts around the update.
        gradients: of the update, unscaled and not clipped.
        total_norm: norm of all gradients, those of other ranks' shards included.
        precision: rounding unit of the arithmetic, such as 2**-52.
        norm_rounding: relative rounding of the framework's own norm, which sums millions of squares.
        applied: number of the update without those that were skipped, from 1.

    Returns:
        By name, of the parameters that deviate: `deviation`, relative to the update; `factors`, of `explanations`;
        `decay`, the expected weight decay; `frozen`, whether the parameter should not change.
    """
    clip = clip_factor(plan, shards, gradients, total_norm)
    clip_rounding = NORM_SAFETY * norm_rounding if clip < 1 else 0.0
    found = {}
    for name, gradient in gradients.items():
        weight = np.asarray(before[name], np.float64)
        if gradient.shape != weight.shape:
            continue  # the active rows of Partial FC
        lr_scale, decay = plan.param_group(name)
        is_clipped = plan.clip_sharded or name not in shards
        if plan.optimizer.name != "sgd":
            if name in shards and plan.optimizer.name in ("lars", "lamb"):
                continue  # their norms are over all ranks
            slots = tuple(np.asarray(before[slot_key(slot, name)], np.float64) for slot in plan.optimizer.slots)
            clipped = gradient * np.float64(clip if is_clipped else 1.0)
            inputs = Inputs(weight, clipped, slots, lr, lr_scale, decay, applied)
            update = np.asarray(after[name], np.float64) - weight
            found.update(_deviating(plan.optimizer, name, inputs, update, precision, clip_rounding))
            continue
        buffer = np.asarray(before.get(slot_key("momentum", name), np.zeros_like(weight)), np.float64)
        terms = Terms(
            lr * lr_scale,
            gradient * np.float64(clip if is_clipped else 1.0),
            decay * weight,
            plan.optimizer.momentum * buffer,
        )
        update = np.asarray(after[name], np.float64) - weight
        deviation = _deviation(terms, update, weight, precision, clip_rounding)
        if deviation is not None:
            factors = explanations(terms, update, weight, lr, plan.optimizer.momentum)
            found[name] = {"deviation": deviation, "factors": factors, "decay": decay, "frozen": lr_scale == 0}
    return found


def _deviating(
    spec: Any, name: str, inputs: Inputs, update: np.ndarray, precision: float, clip_rounding: float
) -> dict[str, dict[str, Any]]:
    """Compare an update by another optimizer than SGD; return {} if rounding explains the deviation."""
    expected = expected_update(spec, inputs)
    error, largest = float(np.abs(update - expected).max(initial=0)), float(np.abs(expected).max(initial=0))
    tolerance = ROUNDING * precision * (float(np.abs(inputs.weight).max(initial=0)) + 4 * largest)
    tolerance += clip_rounding * largest
    if error <= tolerance:
        return {}
    return {
        name: {
            "deviation": error / max(largest, float(np.abs(update).max(initial=0)), 1e-300),
            "factors": slips(spec, inputs, update, tolerance),
            "decay": inputs.decay,
            "frozen": inputs.lr_scale == 0,
        }
    }


def expected_update(spec: Any, inputs: Inputs) -> np.ndarray:
    """Return the change of the weight by the optimizer's formula, in numpy."""
    math, (weight, gradient, slots) = Math(numpy_ops), inputs[:3]
    step, _ = spec.direction(math, weight, gradient, slots, inputs.decay, inputs.applied)
    return -inputs.lr * inputs.lr_scale * step


def slips(spec: Any, inputs: Inputs, update: np.ndarray, tolerance: float) -> dict[str, float]:
    """Return the slips that explain a change of the weight, each with the factor 1: the formula of other inputs."""
    coupled = inputs._replace(gradient=inputs.gradient + inputs.decay * inputs.weight, decay=0.0)
    others = {"ignored": (spec, inputs._replace(lr_scale=1.0))}
    if "square" in spec.slots:
        others |= {"coupled": (spec, coupled), "uncorrected": (spec, inputs._replace(applied=1 << 40))}
    if spec.name == "sgd_nesterov":
        others["plain"] = sgd.Settings(momentum=spec.momentum), inputs
    errors = {slip: np.abs(expected_update(*other) - update).max(initial=0) for slip, other in others.items()}
    return {slip: 1.0 for slip, error in errors.items() if error <= tolerance}


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


def explanations(terms: Terms, update: np.ndarray, weight: np.ndarray, lr: float, momentum: float) -> dict[str, float]:
    """Find hypotheses that explain an update with a single factor.

    Args:
        terms: of the formula.
        update: as it was.
        weight: before the update.
        lr: learning rate without the parameter's factor.
        momentum: of the optimizer.

    Returns:
        The factor of each hypothesis that fits: of the learning rate, the momentum, the gradient, of gradient and decay
        together (dampening), and of the weight (decay).
    """
    rate = terms.lr or lr
    nesterov = terms.gradient + terms.decay + momentum * (terms.gradient + terms.decay + terms.momentum)
    zero = np.zeros_like(update)
    candidates = {
        "nesterov": (zero, nesterov),
        "lr": (zero, terms.gradient + terms.decay + terms.momentum),
        "momentum": (terms.gradient + terms.decay, terms.momentum),
        "decay": (terms.gradient + terms.momentum, weight),
        "gradient": (terms.decay + terms.momentum, terms.gradient),
        "dampening": (terms.momentum, terms.gradient + terms.decay),
    }
    found = {}
    for kind, (fixed, free) in candidates.items():
        rest, power = -update / rate - fixed, float(np.square(free).sum())
        factor = float((free * rest).sum()) / power if power else 0.0
        is_exact = np.abs(rest - factor * free).max() <= FIT * np.abs(update - terms.update).max() / rate
        if is_exact and (kind != "nesterov" or abs(factor - 1) < FIT):
            found[kind] = factor
    return found


def _deviation(
    terms: Terms, update: np.ndarray, weight: np.ndarray, precision: float, clip_rounding: float
) -> float | None:
    """Return the largest deviation relative to the largest update; None if rounding explains it."""
    gradient, decay, momentum = (
        float(np.abs(term).max(initial=0)) for term in (terms.gradient, terms.decay, terms.momentum)
    )
    error = float(np.abs(update - terms.update).max(initial=0))
    largest = float(np.abs(weight).max(initial=0)) + terms.lr * (gradient + decay + momentum)
    if error <= ROUNDING * precision * largest + clip_rounding * terms.lr * gradient:
        return None
    return error / max(float(np.abs(terms.update).max(initial=0)), float(np.abs(update).max(initial=0)), 1e-300)
