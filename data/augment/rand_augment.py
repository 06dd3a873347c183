"""RandAugment (arXiv:1909.13719): a number of drawn operations, all of one magnitude, as torchvision's RandAugment."""

from functools import partial
from typing import Annotated

import numpy as np

from zoo.data.augment.common import policies
from zoo.data.augment.common.options import Range
from zoo.data.augment.common.policies import Interpolation
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip")


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    n: Annotated[int, Range(1, 14)] = 2,
    m: Annotated[int, Range(0, policies.BINS - 1)] = 9,
    interpolation: Interpolation = "nearest",
    fill: policies.Padding = "black",
) -> Drawn:
    """Draw n operations of magnitude m."""
    shift = 150 / 331
    limits = policies.Limits(0.3, shift * target.width, shift * target.height, 30, 0.9, 4)
    keys = policies.move_keys(target, interpolation, fill)
    functions = []
    for _ in range(n):
        name = policies.draw_operation(rng)
        functions.append(policies.operation(name, m, policies.draw_sign(name, rng), limits, keys))
    return Drawn(partial(policies.chain, functions))
