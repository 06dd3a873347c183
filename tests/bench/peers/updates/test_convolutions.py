"""The convolutions alone, in PyTorch."""

import pytest

torch = pytest.importorskip("torch")

from zoo.bench.peers.updates import convolutions_torch  # noqa: E402
from zoo.bench.peers.updates.layers import Layer  # noqa: E402

LAYERS = (
    Layer((2, 3, 9, 9), 8, (3, 3), (2, 2), (1, 1), needs_input_gradient=False),
    Layer((2, 8, 5, 5), 8, (3, 3), (1, 1), (2, 2), (2, 2), groups=8),
    Layer((2, 8), 5, (0, 0)),
)


def test_each_layer_runs_forward_and_backward(monkeypatch):
    calls, backward = [], torch.ops.aten.convolution_backward

    def record(gradient, x, weight, *rest):
        gradients = backward(gradient, x, weight, *rest)
        calls.append([None if g is None else tuple(g.shape) for g in gradients[:2]])
        return gradients

    monkeypatch.setattr(torch.ops.aten, "convolution_backward", record)
    loops = convolutions_torch.loops(LAYERS)
    assert list(loops) == ["convolutions", "convolutions, channels last"]
    for loop in loops.values():
        calls.clear()
        loop()
        assert calls == [[None, (8, 3, 3, 3)], [(2, 8, 5, 5), (8, 1, 3, 3)]]
