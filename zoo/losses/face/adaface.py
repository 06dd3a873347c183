"""AdaFace's margin: larger for images of good quality, which have long embeddings."""

import math
from dataclasses import dataclass

EPS = 1e-3  # of angles, cosines and lengths
MAX_NORM = 100.0  # longer embeddings count as so long


@dataclass(frozen=True)
class Loss:
    """cos(angle - m z) - (m + m z) in place of the cosine of a sample's class (arXiv:2204.00964).

    z is the length of the sample's embedding, within [EPS, MAX_NORM], less the mean and divided by the standard
    deviation (plus EPS) of those of the batch, times h, within [-1, 1]; it has no gradient. The angle is kept within
    [EPS, pi - EPS] and the cosine EPS from -1 and 1, outside of which the target logit has no gradient. As AdaFace of
    head.py in mk-minchul/AdaFace at 9cb981642eb7b579487bfadb0ee9ad8fc3772b74 with t_alpha=1, its default; there, the
    cosines of other classes are cut at EPS from -1 and 1 too.

    The batch is a micro-batch of all processes. As a statistic of the batch, like that of a batch normalization, it
    depends on the size of micro-batches, and not on how many processes share one. No moving average is kept.
    """

    m: float = 0.4  # the margin
    h: float = 0.333  # the larger, the more the margin depends on the quality; 0: it is CosFace's

    def __post_init__(self):
        if not 0 <= self.m < math.pi / 2:
            raise ValueError("m: must be an angle in radians in [0, pi / 2)")
        if not 0 <= self.h < float("inf"):
            raise ValueError("h: must be a finite number, not below 0")

    def margin(self) -> "Loss":
        """Return the margin that trainers implement."""
        return self
