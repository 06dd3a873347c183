"""CosFace's margin: the combined one with a cosine alone."""

from dataclasses import dataclass

from zoo.losses.face import combined


@dataclass(frozen=True)
class Loss:
    """cos(angle) - m3 in place of the cosine of a sample's class (arXiv:1801.09414)."""

    m3: float = 0.4  # margin, a difference of cosines

    def __post_init__(self):
        self.margin()

    def margin(self) -> combined.Loss:
        """Return the margin that trainers implement."""
        return combined.Loss(m2=0.0, m3=self.m3, threshold=False)
