"""Dice loss of images: one minus the overlap of the predicted and the labelled pixels."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """1 - (2 sum of p y) / (sum of p^2 + sum of y^2 + 2 eps) of each image; p the softmax of its logits, y one-hot.

    Sums are over all classes and labelled pixels of an image (arXiv:1606.04797), as DiceLoss of mmsegmentation 1.2.2
    with use_sigmoid=False, which also sums the predictions of ignored pixels. With squared=false it is
    1 - (2 sum of p y + eps) / (sum of p + sum of y + eps), its naive_dice. The mean is over images that have a label,
    so it depends neither on micro-batches nor on processes.
    """

    squared: bool = True  # sums of squares below the fraction line; false: of the values
    eps: float = 1e-3  # keeps the fraction finite

    def __post_init__(self):
        if not 0 < self.eps < float("inf"):
            raise ValueError("eps: must be a finite number above 0")
