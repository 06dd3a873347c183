"""zoo/losses/segment/cross_entropy.py in MindSpore."""

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.losses.segment import cross_entropy
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.losses.types import log_softmax, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over pixels of the loss of logits (N, K, H, W) and labels (N, H, W), and what it is divided by."""

    def __init__(self, settings: cross_entropy.Loss, plan: Plan | None):
        super().__init__()
        self.dtype, number = types(plan)
        self.equal_counts = settings.average == "all"
        self.kept = settings.ohem_kept
        self.threshold = None if settings.ohem_threshold is None else number(settings.ohem_threshold)
        self.is_smoothed, self.smoothing = settings.label_smoothing > 0, number(settings.label_smoothing)
        self.class_weights = None
        if settings.class_weights is not None:
            self.class_weights = Tensor(settings.class_weights, self.dtype)

    def count(self, labels: Tensor) -> int | Tensor:
        if self.equal_counts:
            return labels.size
        valid = labels != IGNORE_INDEX
        if self.class_weights is None:
            return valid.astype(self.dtype).sum()
        return (self.weights(ops.select(valid, labels, ops.zeros_like(labels))) * valid.astype(self.dtype)).sum()

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        valid = labels != IGNORE_INDEX
        labels = ops.select(valid, labels, ops.zeros_like(labels)).astype(mstype.int32)
        plain = losses = self.losses(logits, labels, valid)
        if self.class_weights is not None:
            losses = losses * self.weights(labels)
        if self.is_smoothed:
            losses = self.smoothed(losses, logits, valid)
        if self.kept is not None:
            hard = self.hard_pixels(ops.stop_gradient(losses), ops.stop_gradient(plain), valid)
            losses = losses * hard.astype(self.dtype)
        return losses.sum()

    def smoothed(self, losses: Tensor, logits: Tensor, valid: Tensor) -> Tensor:
        """Return the losses of pixels with label smoothing, given those without."""
        scores = log_softmax(logits)
        if self.class_weights is not None:
            scores = scores * self.class_weights.reshape(1, -1, 1, 1)
        spread = scores.sum(1) / logits.shape[1] * valid.astype(self.dtype)
        return (1 - self.smoothing) * losses - self.smoothing * spread

    def weights(self, labels: Tensor) -> Tensor:
        """Return the weight of each pixel's class."""
        return ops.gather(self.class_weights, labels.astype(mstype.int32), 0)

    def losses(self, logits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
        """Compute the losses of all pixels: (N, H, W).

        Target logits are selected by a product with 0 and 1, because gathering them, with the gradient, takes three
        times as long on a CPU.
        """
        shifted = logits - ops.stop_gradient(logits.max(1, keepdims=True))
        classes = ops.arange(logits.shape[1]).astype(mstype.int32).reshape(1, -1, 1, 1)
        target_logits = (shifted * (labels.expand_dims(1) == classes).astype(self.dtype)).sum(1)
        return (ops.log(ops.exp(shifted).sum(1)) - target_logits) * valid.astype(self.dtype)

    def hard_pixels(self, losses: Tensor, plain: Tensor, valid: Tensor) -> Tensor:
        """Return the pixels to train on, by their losses, or with a threshold the `plain` ones: bool (N, H, W)."""
        kept = self.kept * losses.shape[0]
        if self.threshold is None:
            ranked = self.sort(ops.select(valid, losses, -ops.ones_like(losses)).reshape(-1), True)
            return ops.logical_and(valid, losses >= ranked[min(kept, losses.size) - 1])
        probabilities = ops.exp(-plain)  # of the target class
        ranked = self.sort(ops.select(valid, probabilities, 2 * ops.ones_like(probabilities)).reshape(-1), False)
        index = ops.clamp(valid.astype(mstype.int32).sum() - 1, 0, kept)
        limit = ops.maximum(ops.gather(ranked, index, 0), self.threshold)
        return ops.logical_and(valid, probabilities < limit)

    def sort(self, x: Tensor, descending: bool) -> Tensor:
        if self.dtype == mstype.float32:
            return ops.sort(x, -1, descending)[0]
        # On a CPU, ops.sort rounds to fp32.
        return ops.topk(x, x.size)[0] if descending else -ops.topk(-x, x.size)[0]
