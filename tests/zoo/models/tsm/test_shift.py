"""The temporal shift and the temporal pool in PyTorch, against hand-written values and a reference in loops.

Tests that hold in every framework are in tests/zoo/models/model_cases.py.
"""

import numpy as np
import pytest
import torch

from zoo.models.tsm.spec import Arch, shifts
from zoo.models.tsm.torch import Model, temporal_shift


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


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("channels, div", [(1, 2), (3, 4), (7, 8)])
def test_fewer_channels_than_div_are_not_shifted(channels, div):
    x = torch.from_numpy(random(6, channels, 2, 2))
    out = temporal_shift(x, 3, div)
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr()


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


def test_export_of_the_model():
    model, video = small_model(depth=18).eval(), torch.from_numpy(random(2, 4, 3, 32, 32))
    exported = torch.export.export(model, (video,)).module()
    with torch.no_grad():
        assert torch.allclose(exported(video), model(video), atol=1e-6)
