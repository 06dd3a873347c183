"""AdaFace's margin: larger for images of good quality, which have long embeddings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

EPS = 1e-3  # of angles, cosines and lengths
MAX_NORM = 100.0  # longer embeddings count as so long
AVERAGES: Mapping[str, float] = MappingProxyType({"batch_mean": 20.0, "batch_std": 100.0})  # before the first batch


@dataclass(frozen=True)
class Loss:
    """cos(angle - m z) - (m + m z) in place of the cosine of a sample's class (arXiv:2204.00964).

    z is the length of the sample's embedding, within [EPS, MAX_NORM], less the mean and divided by the standard
    deviation (plus EPS), times h, within [-1, 1]; it has no gradient. Mean and deviation are moving averages, which a
    batch moves by t_alpha times the difference before they are used for it. The angle is kept within [EPS, pi - EPS]
    and the cosine EPS from -1 and 1, outside of which the target logit has no gradient. As AdaFace of head.py in
    mk-minchul/AdaFace at 9cb981642eb7b579487bfadb0ee9ad8fc3772b74; there, the cosines of other classes are cut at EPS
    from -1 and 1 too.

    The batch is a micro-batch of all processes. Its statistics, like those of a batch normalization, depend on the size
    of micro-batches, and not on how many processes share one.
    """

    m: float = 0.4  # the margin
    h: float = 0.333  # the larger, the more the margin depends on the quality; 0: it is CosFace's
    t_alpha: float = 1.0  # weight of a batch in mean and deviation; 1: its own alone. The authors train with 0.01

    def __post_init__(self):
        if not 0 <= self.m < math.pi / 2:
            raise ValueError("m: must be an angle in radians in [0, pi / 2)")
        if not 0 <= self.h < float("inf"):
            raise ValueError("h: must be a finite number, not below 0")
        if not 0 < self.t_alpha <= 1:
            raise ValueError("t_alpha: must lie in (0, 1]; 1 keeps no moving averages")

    @property
    def statistics(self) -> Mapping[str, float]:
        """Return the initial values of the running statistics, in their order: mean and deviation."""
        return AVERAGES if self.t_alpha < 1 else {}

    def margin(self) -> "Loss":
        """Return the margin that trainers implement."""
        return self
