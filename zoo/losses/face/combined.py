"""ArcFace's, CosFace's and SphereFace's margins in one formula."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

MIN_SINE = 1e-3  # lower bound of the sine of an angle by which the derivative of the margin is divided


@dataclass(frozen=True)
class Loss:
    """cos(m1 * angle + m2) - m3 in place of the cosine of a sample's class.

    ArcFace (arXiv:1801.07698) is m2, CosFace (arXiv:1801.09414) m3, SphereFace (arXiv:1704.08063) m1. With `threshold`,
    cosines below threshold_cosine(m2) lose threshold_offset(m2) instead, as in insightface's first implementation, so
    that the target logit keeps falling with the angle.
    """

    m1: float = 1.0  # the target logit is scale * (cos(m1 * angle + m2) - m3): SphereFace's
    m2: float = 0.5  # margin, ArcFace's (radians)
    m3: float = 0.0  # and CosFace's
    threshold: bool = True  # where angle + m2 exceeds pi, continue with cos(angle) less a constant (only with m1 = 1)

    def __post_init__(self):
        if not 1 <= self.m1 < float("inf"):
            raise ValueError("m1: must be at least 1 (1 is no margin)")
        if not 0 <= self.m2 < math.pi:
            raise ValueError("m2: must be an angle in radians in [0, pi)")
        if not 0 <= self.m3 < 2:
            raise ValueError("m3: must lie in [0, 2), as a difference of cosines")
        if self.threshold and self.m1 != 1:
            raise ValueError("threshold: is defined for m1 = 1 only; set task.threshold=false with another m1")

    @property
    def statistics(self) -> Mapping[str, float]:
        """Return the initial values of the running statistics: none."""
        return {}

    def margin(self) -> "Loss":
        """Return the margin that trainers implement."""
        return self


def threshold_cosine(m2: float) -> float:
    """Return the cosine of the angle pi - m2; at larger angles, cos(angle + m2) would rise again."""
    return math.cos(math.pi - m2)


def threshold_offset(m2: float) -> float:
    """Return what is subtracted from cosines below threshold_cosine(m2)."""
    return m2 * math.sin(math.pi - m2)
