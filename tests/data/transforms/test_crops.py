"""ImageNet's random crop: draws computed by hand, and the distributions of area, aspect ratio and position."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.transforms.geometry import random_box

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class ScriptedGenerator:
    """A random generator that returns given values and records the arguments."""

    def __init__(self, uniforms, integers=()):
        self.uniforms, self.positions, self.calls = iter(uniforms), iter(integers), []

    def uniform(self, low, high):
        self.calls.append((low, high))
        return next(self.uniforms)

    def integers(self, high):
        self.calls.append(high)
        return next(self.positions)


def draw_boxes(width=500, height=375, times=3000, **keys):
    rng = np.random.default_rng(0)
    return np.array(
        [random_box(width, height, keys.get("scale", SCALE), keys.get("ratio", RATIO), rng) for _ in range(times)]
    )


def test_a_draw_by_hand():
    # area 0.5 * 400 * 300 = 60000, aspect ratio exp(0.2):
    # w = sqrt(60000 e^0.2) = 270.71, h = sqrt(60000 / e^0.2) = 221.64
    rng = ScriptedGenerator([0.5, 0.2], [11, 22])
    assert random_box(400, 300, SCALE, RATIO, rng) == (22, 11, 271, 222)  # the row is drawn first
    assert rng.calls == [(0.08, 1.0), (math.log(3 / 4), math.log(4 / 3)), 300 - 222 + 1, 400 - 271 + 1]


def test_a_box_that_exceeds_the_image_is_drawn_again():
    # 0.99 of 400 x 300 at 0.75: w = sqrt(118800 * 0.75) = 298.5, h = sqrt(118800 / 0.75) = 398 > 300
    assert random_box(
        400, 300, SCALE, RATIO, ScriptedGenerator([0.99, math.log(0.75), 1.0, math.log(4 / 3)], [0, 0])
    ) == (
        0,
        0,
        400,
        300,
    )
    assert random_box(1, 1, (0.08, 0.2), RATIO, ScriptedGenerator([0.1, 0.0] * 10)) == (
        0,
        0,
        1,
        1,
    )  # rounds to no pixel at all


@pytest.mark.parametrize(
    "width, height, box",
    [
        (600, 100, (233, 0, 133, 100)),  # 100 * 4 / 3 = 133.3; (600 - 133) // 2
        (100, 600, (0, 233, 100, 133)),
        (400, 300, (0, 0, 400, 300)),
        (301, 400, (0, 0, 301, 400)),  # allowed aspect ratio: the whole image
        (299, 400, (0, 0, 299, 399)),
        (402, 301, (0, 0, 401, 301)),
    ],
)
def test_after_ten_failures_the_largest_central_box(width, height, box):
    aspect = math.log(3 / 4) if width >= height else math.log(4 / 3)
    rng = ScriptedGenerator([1.0, aspect] * 10 + [pytest.fail])
    assert random_box(width, height, SCALE, RATIO, rng) == box and len(rng.calls) == 20


@settings(max_examples=150, deadline=None)
@given(width=st.integers(1, 800), height=st.integers(1, 800), seed=st.integers(0, 999))
def test_a_box_lies_in_the_image(width, height, seed):
    left, top, w, h = random_box(width, height, SCALE, RATIO, np.random.default_rng(seed))
    assert left >= 0 and top >= 0 and w >= 1 and h >= 1 and left + w <= width and top + h <= height


def test_areas_are_uniform_and_aspect_ratios_log_uniform():
    boxes = draw_boxes(1000, 1000, scale=(0.08, 0.5))  # none of these can exceed the image
    areas, ratios = boxes[:, 2] * boxes[:, 3] / 1e6, np.log(boxes[:, 2] / boxes[:, 3])
    for values, low, high in ((areas, 0.08, 0.5), (ratios, -math.log(4 / 3), math.log(4 / 3))):
        fractions = np.sort((values - low) / (high - low))
        assert fractions[0] > -0.01 and fractions[-1] < 1.01
        assert np.abs(fractions - (np.arange(3000) + 0.5) / 3000).max() < 1.63 / 3000**0.5  # Kolmogorov-Smirnov, 1 %


def test_positions_are_uniform():
    boxes = draw_boxes(1000, 1000, scale=(0.25, 0.25), ratio=(1.0, 1.0))
    assert set(map(tuple, boxes[:, 2:])) == {(500, 500)}
    for positions in (boxes[:, 0], boxes[:, 1]):
        assert np.abs(np.sort(positions) / 500 - (np.arange(3000) + 0.5) / 3000).max() < 1.63 / 3000**0.5
    assert abs(np.corrcoef(boxes[:, 0], boxes[:, 1])[0, 1]) < 0.08
