"""AdaFace's margin: larger for images of good quality, which have long embeddings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, NotNegative, Range
from zoo.losses import LossName, face


@dataclass(frozen=True, kw_only=True)
class Loss(face.Settings):
    """cos(angle - m z) - (m + m z) in place of the cosine of a sample's class (arXiv:2204.00964).

    z is the length of the sample's embedding, within [eps, max_norm], less the mean and divided by the standard
    deviation (plus eps), times h, within [-1, 1]; it has no gradient. Mean and deviation are moving averages, which a
    batch moves by t_alpha times the difference before they are used for it. The angle is kept within [eps, pi - eps]
    and the cosine eps from -1 and 1, outside of which the target logit has no gradient. As AdaFace of head.py in
    mk-minchul/AdaFace at 9cb981642eb7b579487bfadb0ee9ad8fc3772b74; there, the cosines of other classes are cut at eps
    from -1 and 1 too.

    The batch is a micro-batch of all processes. Its statistics, like those of a batch normalization, depend on the size
    of micro-batches, and not on how many processes share one.
    """

    uses_norms: ClassVar[bool] = True
    eps: ClassVar[float] = 1e-3  # of angles, cosines and lengths
    max_norm: ClassVar[float] = 100.0  # longer embeddings count as so long
    max_cosine: ClassVar[float] = 1 - 1e-3
    max_angle: ClassVar[float] = math.pi - 1e-3

    loss: LossName = "adaface"
    m: Annotated[
        float, Range(low=0, high=math.pi / 2, open_high=True), Doc("Margin of an image of average quality.")
    ] = 0.4
    h: Annotated[NotNegative, Doc("How much the margin depends on the quality; 0: not at all, as CosFace.")] = 0.333
    t_alpha: Annotated[
        face.Share, Doc("Weight of a batch in the moving mean and deviation; 1: its own alone. The authors have 0.01.")
    ] = 1.0

    @property
    def statistics(self) -> Mapping[str, float]:
        """Return the values of mean and deviation before the first batch."""
        return {"batch_mean": 20.0, "batch_std": 100.0} if self.t_alpha < 1 else {}

    @cached_property
    def old_weight(self) -> float:
        """Weight of the moving averages in the new ones."""
        return 1 - self.t_alpha

    def quality(self, ops: Any, norms: Any, statistics: Sequence[Any]) -> Any:
        count, dtype = norms.shape[0], norms.dtype
        norms = ops.clip(norms, self.eps, self.max_norm)
        mean = norms.sum() / count
        std = ops.sqrt(ops.square(norms - mean).sum() / (count - 1))
        if len(statistics) > 0:
            new, old = ops.number(self.t_alpha, dtype), ops.number(self.old_weight, dtype)
            mean = ops.assign(statistics[0], new * mean + old * statistics[0])
            std = ops.assign(statistics[1], new * std + old * statistics[1])
        z = (norms - mean) / (std + ops.number(self.eps, dtype)) * ops.number(self.h, dtype)
        return ops.clip(z, -1, 1)

    def margin(self, ops: Any, cosine: Any, quality: Any) -> tuple[Any, Any]:
        m, dtype = ops.number(self.m, cosine.dtype), cosine.dtype
        inner = ops.clip(cosine, -self.max_cosine, self.max_cosine)
        sine = ops.sqrt((1 - inner) * (1 + inner))
        angle = ops.arctan2(sine, inner) - m * quality
        clipped = ops.clip(angle, self.eps, self.max_angle)
        has_slope = ops.astype(ops.logical_and(clipped == angle, inner == cosine), dtype)
        return ops.cos(clipped) - m * (1 + quality), ops.sin(clipped) / sine * has_slope
