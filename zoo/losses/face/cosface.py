"""CosFace's margin: the combined one with a cosine alone."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.losses.face import combined


@dataclass(frozen=True, kw_only=True)
class Loss(combined.Margin):
    """cos(angle) - m3 in place of the cosine of a sample's class (arXiv:1801.09414)."""

    m1: ClassVar[float] = 1.0
    m2: ClassVar[float] = 0.0
    threshold: ClassVar[bool] = False

    loss: str = "cosface"
    m3: combined.Difference = 0.4  # margin, a difference of cosines
