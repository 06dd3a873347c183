"""ArcFace's margin: the combined one with an angle alone."""

from dataclasses import dataclass

from zoo.losses.face import combined


@dataclass(frozen=True)
class Loss:
    """cos(angle + m2) in place of the cosine of a sample's class (arXiv:1801.07698)."""

    m2: float = 0.5  # margin (radians)
    threshold: bool = True  # where angle + m2 exceeds pi, continue with cos(angle) less a constant

    def __post_init__(self):
        self.margin()

    def margin(self) -> combined.Loss:
        """Return the margin that trainers implement."""
        return combined.Loss(m2=self.m2, threshold=self.threshold)
