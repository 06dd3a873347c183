"""Binary cross-entropy for images with any number of classes each."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.losses import LossName
from zoo.losses.classify import binary_cross_entropy


@dataclass(frozen=True, kw_only=True)
class Loss(binary_cross_entropy.Loss):
    """The loss of that name of classifiers, for targets (N, K) of 0 and 1, or a mixture of two."""

    task: ClassVar[str] = "multilabel"
    loss: LossName = "binary_cross_entropy"
