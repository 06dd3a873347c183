"""ArcFace's, CosFace's and SphereFace's margins in one formula."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, Range, SettingError
from zoo.losses import LossName, face

Angle = Annotated[float, Range(low=0, high=math.pi, open_high=True)]
Difference = Annotated[float, Range(low=0, high=2, open_high=True)]  # of cosines


@dataclass(frozen=True, kw_only=True)
class Margin(face.Settings):
    """cos(m1 * angle + m2) - m3 in place of the cosine of a sample's class.

    ArcFace (arXiv:1801.07698) is m2, CosFace (arXiv:1801.09414) m3, SphereFace (arXiv:1704.08063) m1. With `threshold`,
    cosines below cos(pi - m2) lose m2 * sin(pi - m2) instead, as in insightface's first implementation, so that the
    target logit keeps falling with the angle.
    """

    min_sine: ClassVar[float] = 1e-3  # lower bound of the sine by which the derivative of the margin is divided

    @cached_property
    def has_angle(self: Any) -> bool:
        return (self.m1, self.m2) != (1.0, 0.0)

    @cached_property
    def has_threshold(self: Any) -> bool:
        return self.threshold and self.m2 > 0

    @cached_property
    def threshold_cosine(self: Any) -> float:
        """The cosine of the angle pi - m2; at larger angles, cos(angle + m2) would rise again."""
        return math.cos(math.pi - self.m2)

    @cached_property
    def threshold_offset(self: Any) -> float:
        """The difference of cosines below the threshold."""
        return self.m2 * math.sin(math.pi - self.m2)

    def margin(self: Any, ops: Any, cosine: Any, quality: Any) -> tuple[Any, Any]:
        value, slope, dtype = cosine, ops.ones_like(cosine), cosine.dtype
        if self.has_angle:
            m1, sine = ops.number(self.m1, dtype), ops.sqrt((1 - cosine) * (1 + cosine))
            angle = m1 * ops.arctan2(sine, cosine) + ops.number(self.m2, dtype)
            value, slope = ops.cos(angle), m1 * ops.sin(angle) / ops.maximum(sine, ops.number(self.min_sine, dtype))
        if self.has_threshold:
            is_beyond = cosine <= ops.number(self.threshold_cosine, dtype)
            value = ops.where(is_beyond, cosine - ops.number(self.threshold_offset, dtype), value)
            slope = ops.where(is_beyond, ops.ones_like(slope), slope)
        return value - ops.number(self.m3, dtype), slope


@dataclass(frozen=True, kw_only=True)
class Loss(Margin):
    loss: LossName = "combined"
    m1: Annotated[
        float, Range(low=1), Doc("SphereFace's margin: the target logit is scale * (cos(m1 * angle + m2) - m3).")
    ] = 1.0
    m2: Annotated[Angle, Doc("ArcFace's margin, an angle in radians.")] = 0.5
    m3: Annotated[Difference, Doc("CosFace's margin, a difference of cosines.")] = 0.0
    threshold: Annotated[
        bool, Doc("Where angle + m2 exceeds pi, continue with cos(angle) less a constant; only with m1 = 1.")
    ] = True

    def __post_init__(self):
        super().__post_init__()
        if self.threshold and self.m1 != 1:
            raise SettingError("threshold", "is defined for m1 = 1 only; set task.threshold=false with another m1")
