"""LAMB, layer-wise adaptive rates for AdamW: You et al., arXiv:1904.00962.

    u = mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps) + decay * w, with the slots of zoo/optim/adamw.py
    w = w - lr * trust * u, where trust = |w| / |u|, or 1 if |w| or |u| is 0

For parameters of one dimension (biases, normalizations) trust is 1, as in the authors' code for BERT. |.| is the L2
norm of a parameter, over all ranks if it is sharded; with Partial FC of the rows that the update uses.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.data.fields import NotNegative, Positive
from zoo.optim import adamw


@dataclass(frozen=True)
class Settings(adamw.Settings):
    """Section `optim` with LAMB: the keys of AdamW."""

    name: ClassVar[str] = "lamb"
    uses_norms: ClassVar[bool] = True

    lr: NotNegative = 0.0025  # that of the paper's ResNet-50 with 512 images, 0.005
    eps: Positive = 1e-6

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        step, slots = adamw.Settings.direction(self, math, weight, gradient, slots, decay, applied)
        if math.has_trust(weight):
            of_weight, of_step = math.norm(weight), math.norm(step)
            step = math.scaled(math.trust(of_weight, of_step, of_weight / of_step), step)
        return step, slots
