"""Muon for the filters of convolutions, AdamW for other parameters: Keller Jordan, kellerjordan.github.io/posts/muon.

Of a filter as a matrix, a row per output channel:
    mean = filter_momentum * mean + (1 - filter_momentum) * g
    ahead = filter_momentum * mean + (1 - filter_momentum) * g
    w = w - lr * (0.2 * sqrt(max(rows, columns)) * orthogonal(ahead) + decay * w)

orthogonal(x) takes all singular values of x near 1, by five Newton-Schulz steps, as torch.optim.Muon; there in
bfloat16, here in the type of the weights, so that frameworks agree. With the factor of Moonlight (arXiv:2502.16982; in
torch.optim.Muon adjust_lr_fn="match_rms_adamw"), an update is about as large as one of AdamW: both have one lr.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, Range
from zoo.optim import adamw

STEPS = 5


@dataclass(frozen=True)
class Settings(adamw.Settings):
    """Section `optim` with Muon; beta1, beta2 and eps are AdamW's, of the parameters that are no filters."""

    name: ClassVar[str] = "muon"

    # Of this class, where MindSpore's compiler keeps all their digits: of a singular value x, its cube and fifth power;
    # the root of the mean square of AdamW's usual direction; what is added to the norm of a filter.
    first: ClassVar[float] = 3.4445
    third: ClassVar[float] = -4.7750
    fifth: ClassVar[float] = 2.0315
    size: ClassVar[float] = 0.2
    floor: ClassVar[float] = 1e-7

    filter_momentum: Annotated[
        float, Range(low=0, high=1, open_high=True), Doc("Decay of the moving average of filters' gradients.")
    ] = 0.95

    @cached_property
    def rest(self) -> float:
        return 1 - self.filter_momentum

    def sum_rounding(self, weight: Any) -> float:
        return 4 * self.first**STEPS if weight.ndim > 2 else 0.0  # small singular values grow by `first` in each step

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        if not math.is_filter(weight):
            return adamw.Settings.direction(self, math, weight, gradient, slots, decay, applied)
        kept, rest = math.number(self.filter_momentum, weight), math.number(self.rest, weight)
        mean = kept * slots[0] + rest * gradient
        step = math.of_matrix(self.orthogonal, kept * mean + rest * gradient)
        kept, rest = math.number(self.beta2, weight), math.number(self.rest2, weight)
        square = kept * slots[1] + rest * (gradient * gradient)  # of which AdamW makes use, if a run goes on with it
        return math.decayed(step, weight, decay), (mean, square)

    def orthogonal(self, math: Any, x: Any) -> Any:
        """Return a matrix with the singular vectors of x and values near 1, times size * sqrt(its longer side)."""
        ops, (rows, columns) = math.ops, x.shape
        first, third, fifth = math.number(self.first, x), math.number(self.third, x), math.number(self.fifth, x)
        norm = math.norm(x)
        x = x / (norm + math.number(self.floor, x))
        for _ in range(STEPS):  # by the smaller of x x^T and x^T x
            gram = ops.matmul(x, x, rows > columns, rows <= columns, None)
            factor = third * gram + fifth * ops.matmul(gram, gram, False, False, None)
            pair = (x, factor) if rows > columns else (factor, x)
            x = first * x + ops.matmul(pair[0], pair[1], False, False, None)
        longer = ops.ones_like(norm) * max(rows, columns)
        return math.number(self.size, x) * ops.sqrt(longer) * math.rounded_elements(x)
