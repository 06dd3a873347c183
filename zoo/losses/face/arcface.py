"""ArcFace's margin: the combined one with an angle alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from zoo.data.fields import Doc
from zoo.losses import LossName
from zoo.losses.face import combined


@dataclass(frozen=True, kw_only=True)
class Loss(combined.Margin):
    """cos(angle + m2) in place of the cosine of a sample's class (arXiv:1801.07698)."""

    m1: ClassVar[float] = 1.0
    m3: ClassVar[float] = 0.0

    loss: LossName = "arcface"
    m2: Annotated[combined.Angle, Doc("Margin, an angle in radians.")] = 0.5
    threshold: Annotated[bool, Doc("Where angle + m2 exceeds pi, continue with cos(angle) less a constant.")] = True
