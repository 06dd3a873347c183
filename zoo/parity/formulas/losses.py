"""Losses: reduction, labels that are ignored, smoothing, weights of classes, what counts as a probability."""

import numpy as np

from zoo.parity.formulas.formula import Case, Formula, Number, Options, is_float
from zoo.parity.formulas.pointwise import sigmoid, softmax, softplus

IGNORED = (-100, 255, -1, 0)


def cross_entropy_options(case: Case) -> Options | None:
    """Return options of a cross-entropy of logits (N, K, ...) and labels (N, ...), with or without weights (K,)."""
    if len(case.inputs) not in (2, 3):
        return None
    logits, labels = case.inputs[:2]
    if not is_float(logits) or labels.dtype.kind not in "iu" or labels.shape != (len(logits), *logits.shape[2:]):
        return None
    ignored = [index for index in IGNORED if (labels == index).any()]
    weights = {"weight_of": ("weights", "samples", "none")} if len(case.inputs) == 3 else {}
    return {
        **weights,
        "reduction": ("mean", "sum", "none", "mean_of_batch"),
        "ignore_index": sorted(ignored, key=lambda index: index == 0) if -100 in ignored else (None, *ignored),
        "counted": ("valid", "all"),
        "others": ("all", "wrong"),
        "smoothing": Number((0.0, 0.1), 0.0, 0.999),
        "input": ("logits", "probabilities", "softmax_twice", "log_probabilities"),
    }


def cross_entropy(
    case: Case,
    reduction: str,
    ignore_index: int | None,
    counted: str,
    smoothing: float,
    others: str,
    input: str,
    weight_of: str = "none",
) -> np.ndarray | None:
    """Return a cross-entropy.

    Args:
        counted: which samples a mean divides by.
        others: the classes that share the smoothing: all K of them, or the K - 1 that are wrong.
        weight_of: whether a mean divides by the weights of the classes, or by the number of samples.
    """
    logits, labels = case.inputs[:2]
    valid = labels != ignore_index if ignore_index is not None else np.ones(labels.shape, bool)
    classes = logits.shape[1]
    if (valid & ((labels < 0) | (labels >= classes))).any() or not valid.any():
        return None
    log = {
        "logits": lambda: np.log(softmax(logits, 1)),
        "probabilities": lambda: np.log(logits),
        "softmax_twice": lambda: np.log(softmax(softmax(logits, 1), 1)),
        "log_probabilities": lambda: logits,
    }[input]()
    index = np.where(valid, labels, 0)
    right = np.take_along_axis(log, index[:, None], 1)[:, 0]
    if others == "all":
        losses = -(1 - smoothing) * right - smoothing * log.mean(1)
    else:
        losses = -(1 - smoothing) * right - smoothing * (log.sum(1) - right) / max(classes - 1, 1)
    weights = case.inputs[2][index] if weight_of != "none" else np.ones(labels.shape)
    losses = np.where(valid, losses * weights, 0.0)
    divisors = {
        "mean": (weights * valid).sum()
        if weight_of == "weights"
        else valid.sum()
        if counted == "valid"
        else valid.size,
        "sum": 1,
        "mean_of_batch": len(logits),
    }
    return losses if reduction == "none" else np.asarray(losses.sum() / divisors[reduction])


LOSSES = {
    "square": lambda x, y: np.square(x - y),
    "half_square": lambda x, y: 0.5 * np.square(x - y),
    "absolute": lambda x, y: np.abs(x - y),
    "bce_of_logits": lambda x, y: softplus(x) - x * y,
    "bce": lambda x, y: -(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log1p(-x), -100)),
    "bce_of_sigmoid_twice": lambda x, y: softplus(sigmoid(x)) - sigmoid(x) * y,
    "kl_of_logarithm": lambda x, y: np.where(y > 0, y * (np.log(np.maximum(y, 1e-300)) - x), 0.0),
    "kl_of_logarithms": lambda x, y: np.exp(y) * (y - x),
    "kl_of_probabilities": lambda x, y: y * (np.log(y) - np.log(x)),
    "poisson_of_logarithm": lambda x, y: np.exp(x) - y * x,
    "poisson": lambda x, y: x - y * np.log(x + 1e-8),
    "soft_margin": lambda x, y: softplus(-x * y),
    "hinge": lambda x, y: np.maximum(1 - x * y, 0),
}
REDUCTIONS = ("mean", "sum", "none", "mean_of_batch")
SHAPED = {
    "smooth_absolute": lambda d, a: np.where(d < a, 0.5 * d * d / a, d - 0.5 * a),
    "huber": lambda d, a: np.where(d < a, 0.5 * d * d, a * (d - 0.5 * a)),
}


def reduced(losses: np.ndarray, reduction: str) -> np.ndarray:
    if reduction == "none":
        return losses
    total = losses.sum()
    return np.asarray(total / {"mean": losses.size, "sum": 1, "mean_of_batch": len(losses)}[reduction])


def is_pair(case: Case) -> bool:
    return len(case.inputs) == 2 and all(map(is_float, case.inputs)) and case.inputs[0].shape == case.inputs[1].shape


def pair_options(case: Case) -> Options | None:
    if not is_pair(case):
        return None
    return {"function": tuple(LOSSES), "reduction": REDUCTIONS, "arguments": ("as_is", "swapped")}


def pair_loss(case: Case, function: str, reduction: str, arguments: str) -> np.ndarray:
    x, y = case.inputs if arguments == "as_is" else case.inputs[::-1]
    return reduced(LOSSES[function](x, y), reduction)


def smooth_options(case: Case) -> Options | None:
    if not is_pair(case):
        return None
    return {"delta": Number((1.0, 0.5, 1 / 9), 1e-6), "function": tuple(SHAPED), "reduction": REDUCTIONS}


def smooth_loss(case: Case, delta: float, function: str, reduction: str) -> np.ndarray:
    return reduced(SHAPED[function](np.abs(case.inputs[0] - case.inputs[1]), delta), reduction)


FORMULAS = (
    Formula("cross_entropy", cross_entropy_options, cross_entropy, "cross|entropy|nll|ce"),
    Formula("pair_loss", pair_options, pair_loss, ""),
    Formula("smooth_loss", smooth_options, smooth_loss, ""),
)
