"""ArcFace's margin: the combined one with an angle alone."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.losses.face import combined


@dataclass(frozen=True, kw_only=True)
class Loss(combined.Margin):
    """cos(angle + m2) in place of the cosine of a sample's class (arXiv:1801.07698)."""

    m1: ClassVar[float] = 1.0
    m3: ClassVar[float] = 0.0

    loss: str = "arcface"
    m2: combined.Angle = 0.5  # margin (radians)
    threshold: bool = True  # where angle + m2 exceeds pi, continue with cos(angle) less a constant
