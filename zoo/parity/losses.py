"""Losses by which the outputs of all sides are weighted, in numpy: their gradients start the backward pass."""

import zlib
from collections.abc import Callable, Mapping

import numpy as np

from zoo.data.errors import UserError, known_names

Gradient = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]  # output, target -> loss, its gradient
LABEL = "label"  # input that a loss compares with, and no model gets


def cross_entropy(output: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean cross-entropy of scores (N, K, ...) with classes (N, ...), and its gradient."""
    shifted = output - output.max(1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    index = np.expand_dims(label.astype(np.int64), 1)
    target = np.zeros_like(log)
    np.put_along_axis(target, index, 1.0, 1)
    return float(-(log * target).sum() / label.size), (np.exp(log) - target) / label.size


def mean_squared_error(output: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray]:
    difference = output - label
    return float(np.square(difference).mean()), 2 * difference / difference.size


def binary_cross_entropy(output: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean binary cross-entropy of logits, and its gradient."""
    loss = np.maximum(output, 0) - output * label + np.log1p(np.exp(-np.abs(output)))
    return float(loss.mean()), (1 / (1 + np.exp(-output)) - label) / output.size


LOSSES: dict[str, Gradient] = {
    "cross_entropy": cross_entropy,
    "mse": mean_squared_error,
    "binary_cross_entropy": binary_cross_entropy,
}


class Weighting:
    """Weights of the outputs' elements for the backward pass: random ones, or the gradient of a loss.

    Args:
        name: of the loss; None for random weights.
        axes: returns the order of axes by which an output, given its number, is that of the reference.
    """

    def __init__(
        self, name: str | None, inputs: Mapping[str, np.ndarray], axes: Callable[[int, np.ndarray], tuple[int, ...]]
    ):
        self.name, self.inputs, self.axes = name, inputs, axes
        self.loss: float | None = None  # of the last pass

    def __call__(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        weights = []
        self.loss = None if self.name is None else 0.0
        for index, output in enumerate(outputs):
            order = self.axes(index, output)
            weight = self._weight(index, output.transpose(order))
            weights.append(weight.transpose(np.argsort(order)))
        return weights

    def _weight(self, index: int, output: np.ndarray) -> np.ndarray:
        if self.name is None:
            return np.random.default_rng(zlib.crc32(b"output %d" % index)).standard_normal(output.shape)
        if index:
            return np.zeros_like(output)
        label, shape = self.inputs[LABEL], output.shape
        of_classes = self.name == "cross_entropy"
        if label.shape != ((*shape[:1], *shape[2:]) if of_classes else shape) or (of_classes and len(shape) < 2):
            raise UserError(f"--loss {self.name}: the output has the shape {shape}, and {LABEL} {label.shape}")
        if of_classes and not 0 <= label.min() <= label.max() < shape[1]:
            raise UserError(
                f"--loss {self.name}: {LABEL} is {label.min()} to {label.max()}, and the output has {shape[1]} classes"
            )
        self.loss, gradient = LOSSES[self.name](output, label)
        return gradient


def check(name: str, inputs: Mapping[str, np.ndarray]) -> None:
    """Raise UserError if a loss is unknown, or its label is not an input."""
    if name not in LOSSES:
        raise UserError(f"--loss: {name!r} is no loss{known_names(name, tuple(LOSSES))}; or SIDE=FILE.py:FUNCTION")
    if LABEL not in inputs:
        raise UserError(f"--loss {name}: give the targets as --input {LABEL}=..., such as {LABEL}=int64:4:0:10")
