"""Formulas of optimizers other than SGD in numpy, right and with one slip (zoo/optim has the sources).

One that is not here has a method `direction` in zoo/optim/<name>.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

SLIPS = {
    "coupled": "the weight decay is added to the gradient instead of the update: coupled",
    "uncorrected": "the means are not corrected for their start from 0",
    "untrusted": "the trust ratio is 1",
    "plain": "momentum without Nesterov's step ahead",
    "ignored": "the factor of the learning rate is ignored",
}


class Inputs(NamedTuple):
    """What an update of a parameter depends on.

    Attributes:
        weight, gradient: before the update; the gradient unscaled and clipped.
        slots: by name.
        lr: learning rate without the parameter's factor.
        lr_scale, decay: of the parameter.
        applied: number of the update without those that were skipped, from 1.
    """

    weight: np.ndarray
    gradient: np.ndarray
    slots: Mapping[str, np.ndarray]
    lr: float
    lr_scale: float
    decay: float
    applied: int


def update(spec: Any, inputs: Inputs, slip: str = "") -> np.ndarray:
    """Return the change of the weight.

    Args:
        spec: the optimizer's hyper-parameters.
        inputs: of the update.
        slip: one of SLIPS; "" for the right formula.
    """
    rate = inputs.lr * (1.0 if slip == "ignored" else inputs.lr_scale)
    if hasattr(spec, "direction"):
        direction = spec.direction(inputs.weight, inputs.gradient, inputs.slots, inputs.decay, inputs.applied)
    else:
        direction = (_adaptive if "square" in spec.slots else _momentum)(spec, inputs, slip)
    return -rate * direction


def explain(spec: Any, inputs: Inputs, actual: np.ndarray, tolerance: float) -> dict[str, float]:
    """Return the slips that explain a change of the weight, each with the factor 1."""
    return {slip: 1.0 for slip in SLIPS if np.abs(update(spec, inputs, slip) - actual).max(initial=0) <= tolerance}


def _momentum(spec: Any, inputs: Inputs, slip: str) -> np.ndarray:
    slope = inputs.gradient + inputs.decay * inputs.weight
    if spec.name == "lars" and slip != "untrusted":
        weight, gradient = _norm(inputs.weight), _norm(inputs.gradient)
        ratio = spec.trust_coefficient * weight / (gradient + inputs.decay * weight + spec.eps)
        slope = slope * (ratio if inputs.weight.ndim > 1 and weight and gradient else 1.0)
    velocity = spec.momentum * inputs.slots["momentum"] + slope
    return slope + spec.momentum * velocity if spec.name == "sgd_nesterov" and slip != "plain" else velocity


def _adaptive(spec: Any, inputs: Inputs, slip: str) -> np.ndarray:
    coupled = inputs.decay * inputs.weight if slip == "coupled" else 0.0
    gradient = inputs.gradient + coupled
    mean = spec.beta1 * inputs.slots["mean"] + (1 - spec.beta1) * gradient
    square = spec.beta2 * inputs.slots["square"] + (1 - spec.beta2) * gradient**2
    if slip != "uncorrected":
        mean, square = mean / (1 - spec.beta1**inputs.applied), square / (1 - spec.beta2**inputs.applied)
    step = mean / (np.sqrt(square) + spec.eps) + (inputs.decay * inputs.weight - coupled)
    weight, length = _norm(inputs.weight), _norm(step)
    if spec.name == "lamb" and slip != "untrusted" and inputs.weight.ndim > 1 and weight and length:
        step = step * (weight / length)
    return step


def _norm(x: np.ndarray) -> float:
    return float(np.sqrt(np.square(x).sum()))
