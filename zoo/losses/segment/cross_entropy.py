"""Pixel-wise softmax cross-entropy, on all pixels or on hard ones."""

from dataclasses import dataclass
from typing import Literal

from zoo.losses.weights import check_class_weights


@dataclass(frozen=True)
class Loss:
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

    average: Literal["valid", "all"] = "valid"  # the mean over labelled pixels, or ignored ones too, as in mmseg
    class_weights: tuple[float, ...] | None = None  # factor of the loss of each class
    label_smoothing: float = 0.0  # share of the target that is spread evenly over all classes
    ohem_kept: int | None = None  # online hard example mining: train on at least so many pixels per image ...
    ohem_threshold: float | None = None  # ... and on all whose target class has a lower probability than this

    def __post_init__(self):
        check_class_weights(self.class_weights)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing: must lie in [0, 1)")
        if self.ohem_kept is not None and self.ohem_kept < 1:
            raise ValueError("ohem_kept: must be at least 1")
        if self.ohem_threshold is not None and (self.ohem_kept is None or not 0 < self.ohem_threshold <= 1):
            raise ValueError("ohem_threshold: must be a probability in (0, 1], and needs task.ohem_kept")
        if self.ohem_kept is not None and self.class_weights is not None:
            raise ValueError("class_weights: would decide which pixels are hard; leave task.ohem_kept or them out")
