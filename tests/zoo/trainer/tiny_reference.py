"""The model Tiny (tiny.py of each framework), its loss and its updates in numpy and float64, from their definitions."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

CHANNELS, CLASSES, SIDE, KEEP_RATE = 4, 5, 8, 0.5
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EPS, STATISTICS_RATE = 1e-5, 0.1  # of the batch normalization
SHAPES = {
    "conv.weight": (CHANNELS, 3, 3, 3),
    "bn.weight": (CHANNELS,),
    "bn.bias": (CHANNELS,),
    "fc.weight": (CLASSES, CHANNELS),
    "fc.bias": (CLASSES,),
    "bn.running_mean": (CHANNELS,),
    "bn.running_var": (CHANNELS,),
}
Arrays = dict[str, np.ndarray]


def initial_state(seed: int = 1) -> Arrays:
    """Return float32 weights and running statistics, none of them trivial."""
    rng = np.random.default_rng(seed)
    state = {name: 0.3 * rng.standard_normal(shape) for name, shape in SHAPES.items()}
    state["bn.weight"] += 1
    state["bn.running_var"] = rng.uniform(0.5, 1.5, CHANNELS)
    return {name: array.astype(np.float32) for name, array in state.items()}


def random_batch(samples: int = 4, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (samples, SIDE, SIDE, 3), dtype=np.uint8),
        "label": rng.integers(0, CLASSES, samples),
        "dropout": rng.integers(0, 2, (samples, CHANNELS), dtype=np.uint8),
        "valid": np.ones(samples, np.uint8),
    }


def normalize(pixels: np.ndarray) -> np.ndarray:
    """Normalize uint8 (..., H, W, 3) to float64 (..., 3, H, W)."""
    return np.moveaxis((pixels / 255 - np.array(MEAN)) / np.array(STD), -1, -3)


def cross_entropy(logits: np.ndarray, labels: np.ndarray, smoothing: float) -> tuple[float, np.ndarray]:
    """Return the mean loss and its gradient with respect to the logits."""
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    target = (1 - smoothing) * np.eye(logits.shape[1])[labels] + smoothing / logits.shape[1]
    return -(target * log_probabilities).sum(1).mean(), (np.exp(log_probabilities) - target) / len(logits)


def column(values: np.ndarray) -> np.ndarray:
    return np.reshape(values, (1, -1, 1, 1))


class Forward:
    """Logits of a batch, with what the backward pass needs.

    Args:
        frozen: the batch normalization uses its running statistics, as in evaluation.
        dropout: apply the batch's dropout mask.
    """

    def __init__(self, state: Mapping[str, np.ndarray], batch: Arrays, frozen: bool, dropout: bool):
        self.state = {name: array.astype(np.float64) for name, array in state.items()}
        padded = np.pad(normalize(batch["image"]), ((0, 0), (0, 0), (1, 1), (1, 1)))
        self.patches = sliding_window_view(padded, (3, 3), (2, 3))  # (N, 3, H, W, 3, 3)
        convolved = np.einsum("nchwij,ocij->nohw", self.patches, self.state["conv.weight"])
        self.frozen, self.axes, self.count = frozen, (0, 2, 3), convolved.size // CHANNELS
        self.mean, self.variance = convolved.mean(self.axes), convolved.var(self.axes)
        mean, variance = self.mean, self.variance
        if frozen:
            mean, variance = self.state["bn.running_mean"], self.state["bn.running_var"]
        self.scale = 1 / np.sqrt(variance + EPS)
        self.standardized = (convolved - column(mean)) * column(self.scale)
        self.normalized = self.standardized * column(self.state["bn.weight"]) + column(self.state["bn.bias"])
        assert np.abs(self.normalized).min() > 2e-6  # nearer to 0, rounding decides whether it passes the ReLU
        self.dropout = batch["dropout"] / KEEP_RATE if dropout else np.ones(batch["dropout"].shape)
        self.features = np.maximum(self.normalized, 0).mean((2, 3)) * self.dropout
        self.logits = self.features @ self.state["fc.weight"].T + self.state["fc.bias"]

    def backward(self, to_logits: np.ndarray) -> Arrays:
        """Return the gradients of all parameters, given that of the logits."""
        to_features = to_logits @ self.state["fc.weight"] * self.dropout
        to_normalized = to_features[:, :, None, None] / SIDE**2 * (self.normalized > 0)
        to_standardized = to_normalized * column(self.state["bn.weight"])
        to_convolved = to_standardized
        if not self.frozen:  # https://arxiv.org/abs/1502.03167
            along = (to_standardized * self.standardized).mean(self.axes)
            to_convolved = to_standardized - column(to_standardized.mean(self.axes)) - self.standardized * column(along)
        return {
            "conv.weight": np.einsum("nohw,nchwij->ocij", to_convolved * column(self.scale), self.patches),
            "bn.weight": (to_normalized * self.standardized).sum(self.axes),
            "bn.bias": to_normalized.sum(self.axes),
            "fc.weight": to_logits.T @ self.features,
            "fc.bias": to_logits.sum(0),
        }


class Reference:
    """SGD with momentum, weight decay and clipping by the global norm.

    Args:
        param_group: name -> (learning-rate factor, weight decay); a factor of 0 freezes the parameter.
    """

    def __init__(
        self,
        state: Mapping[str, np.ndarray],
        param_group: Callable[[str], tuple[float, float]],
        clip_norm: float | None = None,
        smoothing: float = 0.0,
        dropout: bool = False,
    ):
        self.state = {name: state[name].astype(np.float64) for name in SHAPES}
        self.param_group, self.clip_norm, self.smoothing, self.dropout = param_group, clip_norm, smoothing, dropout
        self.trainable = [name for name in SHAPES if ".running_" not in name and param_group(name)[0]]
        self.momentum = {name: np.zeros(SHAPES[name]) for name in self.trainable}
        self.gradients: Arrays = {}  # of the last step, not clipped

    def step(self, micro_batches: Sequence[Arrays], lr: float) -> dict[str, float]:
        """Update the state by the mean loss over all micro-batches; return loss and grad_norm (before clipping)."""
        samples = sum(len(batch["label"]) for batch in micro_batches)
        total, gradients = 0.0, {name: np.zeros(SHAPES[name]) for name in self.trainable}
        for batch in micro_batches:
            forward = Forward(self.state, batch, "bn.weight" not in self.trainable, self.dropout)
            loss, to_logits = cross_entropy(forward.logits, batch["label"], self.smoothing)
            weight = len(batch["label"]) / samples
            total += weight * loss
            partial = forward.backward(weight * to_logits)
            for name in self.trainable:
                gradients[name] += partial[name]
            self._update_statistics(forward)
        self.gradients = gradients
        norm = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
        clip = 1.0 if self.clip_norm is None else min(1.0, self.clip_norm / norm)
        for name, gradient in gradients.items():
            factor, decay = self.param_group(name)
            self.momentum[name] = 0.9 * self.momentum[name] + clip * gradient + decay * self.state[name]
            self.state[name] = self.state[name] - lr * factor * self.momentum[name]
        return {"loss": total, "grad_norm": norm}

    def _update_statistics(self, forward: Forward) -> None:
        if not forward.frozen:
            unbiased = forward.variance * forward.count / (forward.count - 1)
            for name, batch_statistic in (("bn.running_mean", forward.mean), ("bn.running_var", unbiased)):
                self.state[name] = (1 - STATISTICS_RATE) * self.state[name] + STATISTICS_RATE * batch_statistic

    def predict(self, batch: Arrays) -> np.ndarray:
        return Forward(self.state, batch, frozen=True, dropout=False).logits
