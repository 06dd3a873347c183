"""The photometric distortion of SSD, as mmsegmentation's PhotoMetricDistortion: data.photometric for any kind."""

from functools import partial

import numpy as np

from zoo.data.augment.common.steps import Drawn, Target
from zoo.data.transforms import photometric

KINDS = ("image", "clip", "scene", "face")


def draw(target: Target, rng: np.random.Generator) -> Drawn:
    """Draw brightness, contrast, saturation and hue."""
    return Drawn(partial(photometric.distort, params=photometric.draw_params(rng)))
