"""Frame sampling against published numbers and the formulas in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.transforms import clips

LENGTHS = st.integers(1, 400)
COUNTS = st.integers(1, 32)


def rng(seed=0):
    return np.random.default_rng(seed)


def middles(n, t):
    """Return floor((k + 1/2) n / t) in exact arithmetic."""
    return [math.floor(Fraction(n, t) * (k + Fraction(1, 2))) for k in range(t)]


def draw_many(function, n, t, times):
    generator = rng()
    return np.stack([function(n, t, generator) for _ in range(times)])


def test_known_frames_of_a_300_frame_video():
    assert clips.uniform_val(300, 8).tolist() == [18, 56, 93, 131, 168, 206, 243, 281]
    assert clips.uniform_test(300, 8).tolist() == [18, 56, 93, 131, 168, 206, 243, 281]
    assert clips.twice_test(300, 8).tolist() == [
        [18, 56, 93, 131, 168, 206, 243, 281],
        [0, 37, 75, 112, 150, 187, 225, 262],
    ]
    dense = clips.dense_test(300, 8)
    assert dense[:, 0].tolist() == [0, 26, 52, 78, 104, 131, 157, 183, 209, 236]
    assert dense[0].tolist() == [0, 8, 16, 24, 32, 40, 48, 56]
    assert dense[9].tolist() == [236, 244, 252, 260, 268, 276, 284, 292]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_fewer_frames_than_segments(n):
    assert clips.uniform_train(n, 8, rng()).tolist() == [0] * 8
    assert clips.uniform_val(n, 8).tolist() == [0] * 8
    assert clips.uniform_test(n, 8).tolist() == [(2 * k + 1) * n // 16 for k in range(8)]  # spread out
    assert clips.twice_test(n, 8)[1].tolist() == [k * n // 8 for k in range(8)]


def test_as_many_frames_as_segments():
    assert clips.uniform_val(8, 8).tolist() == [0] * 8  # as upstream does
    assert clips.uniform_test(8, 8).tolist() == list(range(8))
    assert clips.uniform_train(8, 8, rng()).tolist() == list(range(8))
    assert clips.uniform_val(9, 8).tolist() == middles(9, 8)


def test_uniform_training_draws_every_frame_but_the_tail():
    frames = draw_many(clips.uniform_train, 300, 8, 1500)  # segments of 37 frames, 296..299 are the tail
    for k in range(8):
        assert set(frames[:, k].tolist()) == set(range(37 * k, 37 * k + 37))
    assert frames.max() == 295
    # The offsets of two segments are independent.
    assert abs(np.corrcoef(frames[:, 0], frames[:, 1])[0, 1]) < 0.1


def test_dense_training_draws_every_start_but_the_last_valid_one():
    frames = draw_many(clips.dense_train, 70, 8, 1000)
    assert set(frames[:, 0].tolist()) == set(range(6))  # 0..6 are valid
    assert (frames == frames[:, :1] + np.arange(8) * 8).all()


@pytest.mark.parametrize("n, starts", [(64, {0}), (65, {0}), (66, {0, 1}), (10, {0})])
def test_dense_training_near_the_span(n, starts):
    assert set(draw_many(clips.dense_train, n, 8, 100)[:, 0].tolist()) == starts


def test_dense_sampling_wraps_around_in_a_short_video():
    assert clips.dense_train(20, 8, rng()).tolist() == [0, 8, 16, 4, 12, 0, 8, 16]
    assert clips.dense_test(20, 8).tolist() == [[0, 8, 16, 4, 12, 0, 8, 16]] * 10


@settings(max_examples=200, deadline=None)
@given(n=LENGTHS, t=COUNTS)
def test_deterministic_sampling(n, t):
    length = n / t
    assert clips.uniform_test(n, t).tolist() == [int(length / 2 + length * k) for k in range(t)]
    # A float may be just below an integer.
    assert np.abs(clips.uniform_test(n, t) - middles(n, t)).max() <= 1
    assert clips.uniform_val(n, t).tolist() == (clips.uniform_test(n, t).tolist() if n > t else [0] * t)
    assert clips.twice_test(n, t).tolist() == [
        clips.uniform_test(n, t).tolist(),
        [int(length * k) for k in range(t)],
    ]
    last = max(n - 63, 1) - 1
    starts = [int(i * last / 9) for i in range(10)]
    dense = clips.dense_test(n, t)
    assert np.abs(np.array(starts) % n - dense[:, 0]).max() <= 1
    assert (dense == (dense[:, :1] + np.arange(t) * (64 // t)) % n).all()
    assert dense[0, 0] == 0 and dense[9, 0] == last


@settings(max_examples=200, deadline=None)
@given(n=LENGTHS, t=COUNTS, seed=st.integers(0, 2**32))
def test_every_frame_lies_in_the_video(n, t, seed):
    shapes = {
        "uniform_train": (t,),
        "uniform_val": (t,),
        "uniform_test": (t,),
        "twice_test": (2, t),
        "dense_train": (t,),
        "dense_test": (10, t),
    }
    for name, shape in shapes.items():
        extra = (rng(seed),) if name.endswith("train") else ()
        frames = getattr(clips, name)(n, t, *extra)
        assert frames.shape == shape and frames.dtype == np.int64
        assert frames.min() >= 0 and frames.max() < n
        if name.startswith("uniform"):
            assert (np.diff(frames) >= 0).all()
