"""Lovász-Softmax loss of images: a surrogate of the mean IoU."""

from dataclasses import dataclass
from typing import Literal

from zoo.losses.weights import check_class_weights


@dataclass(frozen=True)
class Loss:
    """Mean over classes of the Lovász extension of the Jaccard loss of each image (arXiv:1705.08790).

    With p the softmax of the logits, the errors |y - p| of a class are sorted in descending order; each is multiplied
    by the increase of 1 - IoU when its pixel joins the wrong ones. It is LovaszLoss of mmsegmentation 1.2.2 with
    per_image=True, but for its mean, which is over images that have a label, so that it depends neither on
    micro-batches nor on processes. Where errors are equal, the derivative is that of any order.
    """

    classes: Literal["present", "all"] = "present"  # average over the classes that an image's labels have, or over all
    class_weights: tuple[float, ...] | None = None  # factor of each class's term

    def __post_init__(self):
        check_class_weights(self.class_weights)
