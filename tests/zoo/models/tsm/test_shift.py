"""The temporal shift and the temporal pool in PyTorch, against hand-written values and a reference in loops.

Tests that hold in every framework are in tests/zoo/models/model_cases.py.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.models.tsm.spec import Arch, shifts
from zoo.models.tsm.torch import Model, temporal_pool, temporal_shift

SIZES = dict(
    n=st.integers(1, 3),
    t=st.integers(1, 5),
    c=st.integers(1, 12),
    h=st.integers(1, 3),
    w=st.integers(1, 3),
    div=st.integers(2, 9),
    direction=st.sampled_from(["future", "past", "causal"]),
    seed=st.integers(0, 999),
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Small models are slower with several threads, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def reference_shift(x, segments, div, direction):
    """Shift element by element, by definition."""
    out, fold = np.zeros_like(x), x.shape[1] // div
    first, second = {"future": (1, -1), "past": (-1, 1), "causal": (-1, 0)}[direction]
    for row in range(x.shape[0]):
        for channel in range(x.shape[1]):
            move = first if channel < fold else second if channel < 2 * fold else 0
            if 0 <= row % segments + move < segments:
                out[row, channel] = x[row + move, channel]
    return out


def reference_pool(x, segments):
    rows = []
    for start in range(0, x.shape[0], segments):
        clip = x[start : start + segments]
        rows += [clip[max(t - 1, 0) : t + 2].max(0) for t in range(0, segments, 2)]
    return np.stack(rows)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("channels, div", [(1, 2), (3, 4), (7, 8)])
def test_fewer_channels_than_div_are_not_shifted(channels, div):
    x = torch.from_numpy(random(6, channels, 2, 2))
    out = temporal_shift(x, 3, div)
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("div", [1, 0, -8])
def test_div_below_two_is_refused(div):
    with pytest.raises(ValueError, match="div"):
        temporal_shift(torch.zeros(4, 8, 1, 1), 4, div)


@pytest.mark.parametrize("frames, segments", [(7, 4), (4, 8), (9, 2)])
def test_incomplete_clips_are_refused(frames, segments):
    with pytest.raises(ValueError, match=f"{frames} frames are not whole clips of {segments}"):
        temporal_shift(torch.zeros(frames, 8, 1, 1), segments)


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_input_is_not_modified(needs_gradient):
    values = random(8, 8, 2, 2)
    x = torch.from_numpy(values.copy()).requires_grad_(needs_gradient)
    out = temporal_shift(x, 4, 4)
    with torch.no_grad():
        out.fill_(7)  # the output does not share its memory
    assert np.array_equal(x.detach().numpy(), values)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("direction", ["future", "past"])
def test_nonfinite_values_stay_in_their_clip_and_do_not_wrap_around(value, direction):
    x = torch.ones(12, 8, 2, 2)
    x[4:8] = value
    out = temporal_shift(x, 4, 4, direction)
    assert torch.isfinite(out[:4]).all() and torch.isfinite(out[8:]).all()
    # The ends are exactly 0 although the whole clip is not finite: nothing was multiplied by 0.
    first, last = (slice(2, 4), slice(0, 2)) if direction == "future" else (slice(0, 2), slice(2, 4))
    assert not out[4, first].any() and not out[7, last].any()
    assert not torch.isfinite(out[4:8, 4:]).any()


def test_a_nonfinite_gradient_stays_in_its_clip():
    x = torch.ones(12, 8, 1, 1, requires_grad=True)
    gradient = torch.ones(12, 8, 1, 1)
    gradient[4:8] = float("nan")
    temporal_shift(x, 4, 4).backward(gradient)
    assert torch.isfinite(x.grad[:4]).all() and torch.isfinite(x.grad[8:]).all()


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_channels_last_stays_channels_last(needs_gradient):
    values = random(6, 8, 3, 5)
    plain = temporal_shift(torch.from_numpy(values), 3, 4)
    x = torch.from_numpy(values).contiguous(memory_format=torch.channels_last).requires_grad_(needs_gradient)
    out = temporal_shift(x, 3, 4)
    assert out.is_contiguous(memory_format=torch.channels_last) and out.stride() == x.stride()
    assert torch.equal(out, plain)
    if needs_gradient:
        gradient = torch.from_numpy(random(6, 8, 3, 5, seed=1)).contiguous(memory_format=torch.channels_last)
        out.backward(gradient)
        assert torch.equal(x.grad, temporal_shift(gradient, 3, 4, "past"))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x[:, ::2],
        lambda x: x.transpose(2, 3),
        lambda x: x.transpose(0, 1),
        lambda x: x[:, :1].expand(-1, 8, -1, -1),
        lambda x: x[:1].expand(12, -1, -1, -1),
        lambda x: x[:, :, 1:, :-1],
    ],
)
def test_inputs_that_are_not_contiguous(view):
    x = view(torch.from_numpy(random(12, 12, 4, 4)))
    expected = reference_shift(x.numpy(), 3, 4, "future")
    assert np.array_equal(temporal_shift(x, 3, 4).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64])
def test_every_dtype_is_preserved_and_exact(dtype):
    values = np.random.default_rng(0).integers(-100, 100, (8, 9, 2, 2))
    out = temporal_shift(torch.from_numpy(values).to(dtype), 4, 3)
    assert out.dtype == dtype
    assert np.array_equal(out.to(torch.int64).numpy(), reference_shift(values, 4, 3, "future"))


@pytest.mark.parametrize("direction", ["future", "past", "causal"])
def test_first_and_second_derivatives(direction):
    x = torch.from_numpy(random(4, 5, 1, 2).astype(np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: temporal_shift(x, 2, 2, direction), x)
    # The square has a second derivative other than zero.
    assert torch.autograd.gradgradcheck(lambda x: temporal_shift(x, 2, 2, direction) ** 2, x)


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_equals_the_reference(n, t, c, h, w, div, direction, seed):
    x = random(n * t, c, h, w, seed=seed)
    expected = reference_shift(x, t, div, direction)
    assert np.array_equal(temporal_shift(torch.from_numpy(x), t, div, direction).numpy(), expected)
    with_gradient = torch.from_numpy(x).requires_grad_()
    assert np.array_equal(temporal_shift(with_gradient, t, div, direction).detach().numpy(), expected)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 3), half=st.integers(1, 4), c=st.integers(1, 4), seed=st.integers(0, 999))
def test_pool_equals_reference_and_max_pool3d(n, half, c, seed):
    x = torch.from_numpy(random(2 * half * n, c, 2, 3, seed=seed)).requires_grad_()
    out = temporal_pool(x, 2 * half)
    assert np.array_equal(out.detach().numpy(), reference_pool(x.detach().numpy(), 2 * half))
    clips = x.detach().clone().requires_grad_()
    expected = F.max_pool3d(clips.unflatten(0, (n, 2 * half)).transpose(1, 2), (3, 1, 1), (2, 1, 1), (1, 0, 0))
    expected = expected.transpose(1, 2).flatten(0, 1)
    assert torch.equal(out, expected)
    gradient = torch.from_numpy(random(*out.shape, seed=seed + 1))
    out.backward(gradient)
    expected.backward(gradient)
    assert torch.allclose(x.grad, clips.grad, atol=1e-6)


def shifts_per_layer(**arch):
    return [sum(layer) for layer in shifts(Arch(**arch))]


def test_which_blocks_shift():
    assert shifts_per_layer(depth=50) == [3, 4, 6, 3]
    assert shifts_per_layer(depth=18) == [2, 2, 2, 2] and shifts_per_layer(depth=34) == [3, 4, 6, 3]
    assert shifts_per_layer(depth=101) == [2, 2, 12, 2]  # every second block, from the first
    assert shifts_per_layer(depth=152) == [2, 4, 18, 2]
    assert [i for i, on in enumerate(shifts(Arch(depth=101))[2]) if on] == list(range(0, 23, 2))
    assert shifts_per_layer(depth=101, shift_place="block") == [3, 4, 23, 3]
    for depth in (18, 34, 50, 101, 152):
        assert shifts_per_layer(depth=depth, shift_place="none") == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "depth, place, count", [(50, "blockres", 16), (101, "blockres", 18), (101, "block", 33), (50, "none", 0)]
)
def test_the_model_shifts_as_often_as_the_spec_defines(depth, place, count, monkeypatch):
    calls = []
    original = Model.shift
    monkeypatch.setattr(Model, "shift", lambda self, x, segments: calls.append(1) or original(self, x, segments))
    model = Model(Arch(depth=depth, num_classes=2, segments=2, shift_place=place, width=2)).eval()
    with torch.no_grad():
        model(torch.zeros(1, 2, 3, 32, 32))
    assert len(calls) == count


def small_model(**arch):
    torch.manual_seed(0)
    model = Model(Arch(**{"depth": 50, "num_classes": 5, "segments": 4, "width": 4, **arch}))
    for module in model.modules():  # no neutral weights and statistics
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def test_only_blockres_leaves_the_shortcut_unshifted():
    x = torch.from_numpy(np.abs(random(4, 16, 2, 2)))
    for place in ("blockres", "block"):
        model = small_model(shift_place=place).eval()
        block = model.layer1[1]
        torch.nn.init.zeros_(block.bn3.weight)  # the residual branch adds nothing
        torch.nn.init.zeros_(block.bn3.bias)
        with torch.no_grad():
            out = model.run_block(block, x, 4, True)
        assert torch.equal(out, x if place == "blockres" else temporal_shift(x, 4, 8))


@pytest.mark.parametrize(
    "arch",
    [
        {},
        {"temporal_pool": True},
        {"non_local": True},
        {"temporal_pool": True, "non_local": True},
        {"shift_place": "block"},
    ],
)
def test_a_clip_is_independent_of_the_rest_of_the_batch(arch):
    model = small_model(**arch).eval()
    video = torch.from_numpy(random(3, 4, 3, 32, 32))
    with torch.no_grad():
        together = model(video)
        alone = torch.cat([model(clip[None]) for clip in video])
    assert torch.allclose(together, alone, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def test_export_of_the_model():
    model, video = small_model(depth=18).eval(), torch.from_numpy(random(2, 4, 3, 32, 32))
    exported = torch.export.export(model, (video,)).module()
    with torch.no_grad():
        assert torch.allclose(exported(video), model(video), atol=1e-6)
