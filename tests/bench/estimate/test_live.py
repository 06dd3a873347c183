"""Bytes of live tensors: allocation, views, release."""

import pytest

torch = pytest.importorskip("torch")

from zoo.bench.estimate.live import Live  # noqa: E402  (needs PyTorch)


def test_the_peak_counts_what_lives_at_once():
    with Live() as live:
        a = torch.empty(1000)
        b = a.view(10, 100)  # the same bytes
        for _ in range(3):
            c = a + 1
            del c
        assert live.peak == 8000
        del a
        d = torch.empty(1500)  # b keeps the first 4000 bytes alive
        assert live.peak == 10000
        del b, d
        torch.empty(2500)
    assert live.peak == 10000


def test_existing_tensors_do_not_count():
    weight = torch.ones(100)
    with Live([weight]) as live:
        weight.mul_(2)
        weight.view(10, 10)
    assert live.peak == 0


def test_a_backward_pass():
    """x and exp(x) live with the result's gradient, and later with the gradient of x."""
    x = torch.ones(1000, requires_grad=True)
    with Live([x]) as live:
        y = x.exp()
        y.sum().backward()
    assert x.grad is not None and 8000 <= live.peak <= 12100
