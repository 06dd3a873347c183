"""Pixel-wise softmax cross-entropy, on all pixels or on hard ones."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from zoo.data.fields import Count, Doc, Probability, SettingError
from zoo.losses import LossName, check_class_weights, segment
from zoo.losses.segment import IGNORE_INDEX

# Relative distance to the last hard pixel below which others are as hard, in fp64. Pixels at the edge of an enlarged
# map are equal but for rounding, by which every framework would choose others.
TIE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Loss(segment.Settings):
    """-log p of the label of each pixel, for the softmax p of logits (N, K, H, W) and labels (N, H, W).

    A pixel with a class weight has weight times the loss, and counts as `weight` pixels in average=valid (as
    torch.nn.CrossEntropyLoss, and mmsegmentation with avg_non_ignore).

    With `label_smoothing`, the loss of a pixel with label y, weights w and K classes is
    -(1 - label_smoothing) w_y log p_y - label_smoothing / K * (sum of w_k log p_k), and it counts as w_y pixels: that
    of torch.nn.CrossEntropyLoss with weight, label_smoothing and ignore_index. Ignored pixels have no loss.

    With `ohem_kept`, the loss is restricted to hard pixels (online hard example mining, arXiv:1604.03540, as
    mmsegmentation's OHEMPixelSampler). With a threshold, these are the pixels whose label has a probability below
    max(threshold, that of the ohem_kept * N-th hardest pixel); without one, those with the ohem_kept * N largest
    losses, smoothed ones with label smoothing. The sum of their losses is still divided by the number of pixels that
    `average` selects.
    """

    loss: LossName = "cross_entropy"
    average: Annotated[
        Literal["valid", "all"],
        Doc("Pixels that the mean is taken over; valid: labelled ones, all: ignored ones too, as mmsegmentation."),
    ] = "valid"
    class_weights: Annotated[tuple[float, ...] | None, Doc("Factor of the loss of each class.")] = None
    label_smoothing: Annotated[segment.Share, Doc("Share of the target that is spread evenly over all classes.")] = 0.0
    ohem_kept: Annotated[
        Count | None, Doc("Least number of pixels per image in online hard example mining; null: all pixels count.")
    ] = None
    ohem_threshold: Annotated[
        Probability | None, Doc("Probability of the target class below which mining keeps a pixel.")
    ] = None

    def __post_init__(self):
        super().__post_init__()
        check_class_weights(self.class_weights)
        if self.ohem_threshold is not None and (self.ohem_kept is None or self.ohem_threshold == 0):
            raise SettingError("ohem_threshold", "must be above 0, and needs task.ohem_kept")
        if self.ohem_kept is not None and self.class_weights is not None:
            raise SettingError("class_weights", "would decide which pixels are hard; leave task.ohem_kept or them out")

    @property
    def equal_counts(self) -> bool:
        return self.average == "all"

    @cached_property
    def is_smoothed(self) -> bool:
        return self.label_smoothing > 0

    @cached_property
    def pixel_weights(self) -> tuple[float, ...]:
        return (*(self.class_weights or ()), 0.0)

    def auxiliary(self) -> "Loss":
        """Return the loss of auxiliary logits, without mining of hard pixels."""
        return replace(self, ohem_kept=None, ohem_threshold=None)

    def count(self, ops: Any, labels: Any, dtype: Any) -> Any:
        if self.average == "all" or self.class_weights is None:
            return segment.count_pixels(ops, labels, self.average, dtype)
        return self.weights(ops, labels, dtype).sum()

    def total(self, ops: Any, logits: Any, labels: Any) -> Any:
        dtype = logits.dtype
        losses = plain = ops.cross_entropy(logits, labels, IGNORE_INDEX)
        if self.class_weights is not None:
            losses = losses * self.weights(ops, labels, dtype)
        if self.is_smoothed:
            scores, smoothing = ops.log_softmax(logits), ops.number(self.label_smoothing, dtype)
            if self.class_weights is not None:
                scores = scores * ops.vector(self.class_weights, logits).reshape((1, -1, 1, 1))
            spread = scores.sum(1) / logits.shape[1] * ops.astype(labels != IGNORE_INDEX, dtype)
            losses = (1 - smoothing) * losses - smoothing * spread
        if self.ohem_kept is not None:
            hard = self.hard_pixels(ops, ops.stop_gradient(losses), ops.stop_gradient(plain), labels != IGNORE_INDEX)
            losses = losses * ops.astype(hard, dtype)
        return losses.sum()

    def weights(self, ops: Any, labels: Any, dtype: Any) -> Any:
        """Return the weight of each pixel's class, 0 for ignored pixels."""
        return ops.lookup(self.pixel_weights, ops.clip(ops.index(labels), 0, len(self.pixel_weights) - 1), dtype)

    def hard_pixels(self, ops: Any, losses: Any, plain: Any, valid: Any) -> Any:
        """Return the pixels to train on, by their losses, or with a threshold the `plain` ones: bool (N, H, W)."""
        kept = self.ohem_kept * losses.shape[0]
        if self.ohem_threshold is None:
            ranked = ops.sort(ops.where(valid, losses, -1.0).reshape((-1,)), descending=True)
            last = ranked[min(kept, ranked.shape[0]) - 1]
            return ops.logical_and(valid, losses >= last * ops.number(1 - TIE, losses.dtype))
        probabilities = ops.exp(-plain)  # of the target class
        ranked = ops.sort(ops.where(valid, probabilities, 2.0).reshape((-1,)), descending=False)
        last = ops.clip(ops.index(valid).sum() - 1, 0, kept)
        limit = ops.maximum(ops.element(ranked, last), ops.number(self.ohem_threshold, losses.dtype))
        return ops.logical_and(valid, probabilities < limit * ops.number(1 - TIE, losses.dtype))
