"""Updates of optimizers and of running statistics.

A case of an update has the parameter before and its gradients as inputs; its output holds the changes of the parameter,
one after the other, (updates, ...).
"""

from collections.abc import Callable

import numpy as np

from zoo.parity.formulas.formula import SAMPLE, Case, Formula, Number, Options

DECAYS = ("coupled", "decoupled", "decoupled_from_lr")
LR = Number((0.1, 0.01, 1e-3), 0.0)


def number(*starts: float, high: float = float("inf")) -> Number:
    return Number(starts, 0.0, high)


def is_update(case: Case) -> bool:
    return len(case.inputs) > 1 and len(case.reference) == len(case.inputs) - 1


def updated(case: Case, lr: float, decay: float, decay_kind: str, step: Callable) -> np.ndarray:
    """Return the changes of a parameter.

    Args:
        step: returns what is subtracted from the parameter, of the gradient, the number of the update, from 1, and the
            learning rate.
    """
    weight, *gradients = case.inputs
    rates = lr * case.params.get("rates", np.ones(len(gradients)))
    changes = []
    for count, (gradient, rate) in enumerate(zip(gradients, rates), 1):
        change = -step(gradient + (decay * weight if decay_kind == "coupled" else 0.0), count, rate)
        if decay_kind != "coupled":
            change = change - (rate if decay_kind == "decoupled" else 1.0) * decay * weight
        weight = weight + change
        changes.append(change)
    return np.stack(changes)


def sgd_options(case: Case) -> Options | None:
    if not is_update(case):
        return None
    return {
        "decay_kind": DECAYS,
        "lr": LR,
        "momentum": number(0.0, 0.9, high=1.0),
        "decay": number(0.0, 1e-4),
        "dampening": number(0.0, 0.9, high=1.0),
        "nesterov": (False, True),
        "velocity": ("of_gradients", "of_steps"),
        "first": ("whole", "dampened"),
    }


def sgd(
    case: Case,
    lr: float,
    momentum: float,
    decay: float,
    dampening: float,
    decay_kind: str,
    nesterov: bool,
    velocity: str,
    first: str,
) -> np.ndarray:
    """Return updates of SGD with momentum.

    Args:
        velocity: sums up gradients, and the rate is multiplied afterwards, or steps, with the rate at their time.
        first: whether the first gradient enters the velocity as a whole or is dampened as all others are.
    """
    state = np.zeros_like(case.inputs[0])

    def step(gradient: np.ndarray, count: int, rate: float) -> np.ndarray:
        nonlocal state
        kept = 1.0 if count == 1 and first == "whole" else 1 - dampening
        now, later = (1.0, rate) if velocity == "of_gradients" else (rate, 1.0)
        state = momentum * state + now * kept * gradient
        return later * (now * gradient + momentum * state if nesterov else state)

    return updated(case, lr, decay, decay_kind, step)


def adam_options(case: Case) -> Options | None:
    if not is_update(case):
        return None
    return {
        "decay_kind": DECAYS,
        "lr": Number((1e-3, 1e-2, 0.1), 0.0),
        "eps": number(1e-8, 1e-7, 1e-5),
        "decay": number(0.0, 1e-2),
        "beta1": number(0.9, high=0.9999),
        "beta2": number(0.999, 0.99, high=0.99999),
        "root": ("after_correction", "before_correction", "inside"),
        "correction": ("both", "none", "first"),
        "amsgrad": (False, True),
        "nesterov": (False, True),
    }


def adam(
    case: Case,
    lr: float,
    eps: float,
    decay: float,
    beta1: float,
    beta2: float,
    root: str,
    correction: str,
    decay_kind: str,
    amsgrad: bool,
    nesterov: bool,
) -> np.ndarray:
    """Return updates of Adam and AdamW.

    Args:
        root: epsilon is added to the root of the corrected second moment, to that of the moment itself, or within it.
        correction: of the bias of both moments, of none, or of the first alone.
    """
    first = second = largest = np.zeros_like(case.inputs[0])

    def step(gradient: np.ndarray, count: int, rate: float) -> np.ndarray:
        nonlocal first, second, largest
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * np.square(gradient)
        largest = np.maximum(largest, second) if amsgrad else second
        rest1 = 1 - beta1**count if correction != "none" else 1.0
        rest2 = 1 - beta2**count if correction == "both" else 1.0
        if root == "inside":
            size = np.sqrt(largest / rest2 + eps)
        else:
            size = (np.sqrt(largest) + eps * (1.0 if root == "before_correction" else np.sqrt(rest2))) / np.sqrt(rest2)
        ahead = beta1 * first + (1 - beta1) * gradient if nesterov else first
        return rate * ahead / rest1 / size

    return updated(case, lr, decay, decay_kind, step)


def square_options(case: Case) -> Options | None:
    if not is_update(case):
        return None
    return {
        "lr": Number((1e-2, 1e-3, 0.1), 0.0),
        "eps": number(1e-8, 1e-10, 1e-6),
        "average": number(0.99, 0.9, 0.95, high=0.9999),
        "decay": number(0.0),
        "momentum": number(0.0, 0.9, high=1.0),
        "initial": number(0.0, 0.1, 1.0),
        "root": ("outside", "inside"),
        "centered": (False, True),
        "kind": ("average", "sum"),
    }


def by_squares(
    case: Case,
    lr: float,
    eps: float,
    average: float,
    decay: float,
    momentum: float,
    initial: float,
    root: str,
    centered: bool,
    kind: str,
) -> np.ndarray | None:
    """Return updates of RMSprop, and of Adagrad, which sums up the squares."""
    if kind == "sum" and (centered or average != 0.99):
        return None
    squares = np.full_like(case.inputs[0], initial)
    mean = state = np.zeros_like(case.inputs[0])

    def step(gradient: np.ndarray, count: int, rate: float) -> np.ndarray:
        nonlocal squares, mean, state
        old, new = (1.0, 1.0) if kind == "sum" else (average, 1 - average)
        squares = old * squares + new * np.square(gradient)
        mean = average * mean + (1 - average) * gradient
        variance = squares - np.square(mean) if centered else squares
        direction = gradient / (np.sqrt(variance + eps) if root == "inside" else np.sqrt(variance) + eps)
        state = momentum * state + direction
        return rate * state

    return updated(case, lr, decay, "coupled", step)


def some_elements(case: Case) -> Case:
    """Return a case with the first elements of the parameter."""
    count = SAMPLE // 8
    flat = [y.reshape(len(y), -1)[:, :count] for y in (case.reference, case.suspect)]
    inputs = [x.ravel()[:count] for x in case.inputs]
    return case._replace(inputs=inputs, reference=flat[0], suspect=flat[1])


def statistic_options(case: Case) -> Options | None:
    """Return options of running statistics, (2, C), after a batch (N, C, ...), of those before, (2, C)."""
    shapes = {case.reference.shape, case.inputs[1].shape, (2, case.inputs[0].shape[1])}
    if len(shapes) > 1:
        return None
    return {"momentum": number(0.1, 0.01, high=1.0), "ddof": (1, 0)}


def running_statistics(case: Case, momentum: float, ddof: int) -> np.ndarray:
    """Return running mean and variance; momentum is the weight of the new batch."""
    x, before = case.inputs
    axes = (0, *range(2, x.ndim))
    return (1 - momentum) * before + momentum * np.stack([x.mean(axes), x.var(axes, ddof=ddof)])


def clip_options(case: Case) -> Options | None:
    if len(case.inputs) != 1 or "clip" not in case.kind.lower() or case.inputs[0].shape != case.reference.shape:
        return None
    return {"eps": number(0.0, 1e-6, high=1e-2), "most": number(1.0, 0.1, 5.0), "by": ("norm", "elements")}


def clip(case: Case, most: float, eps: float, by: str) -> np.ndarray:
    """Return a gradient whose norm, or each element, is clipped."""
    gradient = case.inputs[0]
    if by == "elements":
        return np.clip(gradient, -most, most)
    return gradient * min(1.0, most / (float(np.linalg.norm(gradient)) + eps))


UPDATES = (
    Formula("sgd", sgd_options, sgd, "sgd|momentum", some_elements),
    Formula("adam", adam_options, adam, "adam|lamb", some_elements),
    Formula("by_squares", square_options, by_squares, "rms|adagrad", some_elements),
)
STATISTICS = Formula("running_statistics", statistic_options, running_statistics, "")
CLIP = Formula("clip", clip_options, clip, "clip")
