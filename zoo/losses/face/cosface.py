"""CosFace's margin: the combined one with a cosine alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from zoo.data.fields import Doc
from zoo.losses import LossName
from zoo.losses.face import combined


@dataclass(frozen=True, kw_only=True)
class Loss(combined.Margin):
    """cos(angle) - m3 in place of the cosine of a sample's class (arXiv:1801.09414)."""

    m1: ClassVar[float] = 1.0
    m2: ClassVar[float] = 0.0
    threshold: ClassVar[bool] = False

    loss: LossName = "cosface"
    m3: Annotated[combined.Difference, Doc("Margin, a difference of cosines.")] = 0.4
