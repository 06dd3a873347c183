"""TrivialAugment (arXiv:2103.10158): one drawn operation of a drawn magnitude, as torchvision's TrivialAugmentWide."""

import numpy as np

from zoo.data.augment.common import policies
from zoo.data.augment.common.policies import Interpolation
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip")
LIMITS = policies.Limits(shear=0.99, translate_x=32, translate_y=32, rotate=135, enhance=0.99, posterize=6)


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    interpolation: Interpolation = "nearest",
    fill: policies.Padding = "black",
) -> Drawn:
    """Draw an operation, its magnitude and its sign."""
    name, magnitude = policies.draw_operation(rng), int(rng.integers(policies.BINS))
    sign = policies.draw_sign(name, rng)
    return Drawn(policies.operation(name, magnitude, sign, LIMITS, policies.move_keys(target, interpolation, fill)))
