"""The multi-scale crop of TSN and TSM: what data.scales does to clips."""

from typing import Annotated

import numpy as np

from zoo.data.augment.common.options import Range
from zoo.data.augment.common.steps import Target
from zoo.data.transforms.clips import multi_scale_box
from zoo.data.transforms.geometry import Geometry, Size

KINDS = ("clip",)


def crop(
    size: Size,
    target: Target,
    rng: np.random.Generator,
    *,
    scales: Annotated[tuple[float, ...], Range(0, 1, above=True, ordered=False)] = (1.0, 0.875, 0.75, 0.66),
) -> Geometry:
    """Draw the sides of a box from neighboring scales of the shorter side, and one of 13 places."""
    return Geometry(multi_scale_box(*size, target.width, scales, rng), (target.width, target.height))
