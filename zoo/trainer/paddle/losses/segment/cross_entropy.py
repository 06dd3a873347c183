"""zoo/losses/segment/cross_entropy.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.segment import cross_entropy
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.paddle.losses.constants import constant


class Loss:
    """Sum over pixels of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and what it is divided by."""

    def __init__(self, settings: cross_entropy.Loss):
        self.settings, self.equal_counts = settings, settings.average == "all"
        self.weights = settings.class_weights

    def count(self, labels: paddle.Tensor) -> int | paddle.Tensor:
        if self.equal_counts:
            return labels.size
        if self.weights is None:
            return (labels != IGNORE_INDEX).sum()
        return self._pixel_weights(labels, self.weights, paddle.float64).sum()

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        losses = F.cross_entropy(logits, labels.unsqueeze(1), ignore_index=IGNORE_INDEX, reduction="none", axis=1)
        losses = plain = losses.squeeze(1)
        if self.weights is not None:
            losses = losses * self._pixel_weights(labels, self.weights, losses.dtype)
        if self.settings.label_smoothing > 0:
            losses = self._smoothed(losses, logits, labels)
        if self.settings.ohem_kept is not None:
            hard = self._hard_pixels(losses.detach(), plain.detach(), labels, self.settings.ohem_kept)
            losses = losses * hard.astype(losses.dtype)
        return losses.sum()

    def _smoothed(self, losses: paddle.Tensor, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the losses of pixels with label smoothing, given those without."""
        scores, smoothing = F.log_softmax(logits, 1), self.settings.label_smoothing
        if self.weights is not None:
            scores = scores * constant(self.weights, scores.dtype).reshape([1, -1, 1, 1])
        spread = scores.mean(1) * (labels != IGNORE_INDEX).astype(scores.dtype)
        return (1 - smoothing) * losses - smoothing * spread

    @staticmethod
    def _pixel_weights(labels: paddle.Tensor, weights: tuple[float, ...], dtype: paddle.dtype) -> paddle.Tensor:
        """Return the weight of each pixel's class, 0 for ignored pixels."""
        return constant((*weights, 0.0), dtype)[labels.astype("int64").clip(max=len(weights))]

    def _hard_pixels(
        self, losses: paddle.Tensor, plain: paddle.Tensor, labels: paddle.Tensor, kept_per_image: int
    ) -> paddle.Tensor:
        """Return the pixels to train on, by their losses, or with a threshold the `plain` ones: bool (N, H, W)."""
        valid, kept, threshold = labels != IGNORE_INDEX, kept_per_image * len(losses), self.settings.ohem_threshold
        if threshold is None:
            ranked = paddle.where(valid, losses, paddle.full_like(losses, -1)).flatten().sort(descending=True)
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        probabilities = paddle.exp(-plain)  # of the target class
        ranked = paddle.where(valid, probabilities, paddle.full_like(probabilities, 2)).flatten().sort()
        limit = ranked[(valid.sum() - 1).clip(0, kept)]
        return valid & (probabilities < limit.clip(min=threshold))
