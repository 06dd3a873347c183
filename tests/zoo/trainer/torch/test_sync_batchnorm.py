"""Our own batch normalisation over all ranks against PyTorch's, with one rank; test_processes.py has several."""

import pytest
import torch
from torch import nn

from zoo.trainer.torch import sync_batchnorm

SHAPES = [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)]


def norms(shape, dtype=torch.float32):
    torch.manual_seed(0)
    own = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm3d)(shape[1])
    with torch.no_grad():
        own.weight.uniform_(0.5, 1.5)
        own.bias.uniform_(-1, 1)
    ours = type(own)(shape[1])
    ours.load_state_dict(own.state_dict())
    return own.to(torch.float64), sync_batchnorm.convert_sync_batchnorm(ours, torch.device("cpu"))


@pytest.mark.parametrize("at_once", [1, 1 << 22])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_gradients_and_statistics(monkeypatch, shape, layout, at_once):
    """Against float64, for a mean far from 0 too; rows at once or one by one."""
    monkeypatch.setattr(sync_batchnorm, "BLOCK_SIZE", at_once)
    own, ours = norms(shape)
    x = 3 + 2 * torch.randn(shape)
    x = x.contiguous(memory_format=layout) if x.dim() == 4 else x
    wide = x.double().requires_grad_()
    x.requires_grad_()
    slope = torch.randn(shape)
    deviations = wide.detach().transpose(0, 1).flatten(1).std(1, unbiased=False)
    room = 1 + float(1 / deviations.min())  # by which a normalisation amplifies rounding
    a, b = ours(x), own(wide)
    a.backward(slope)
    b.backward(slope.double())
    for mine, true in (
        (a, b),
        (x.grad, wide.grad),
        (ours.weight.grad, own.weight.grad),
        (ours.bias.grad, own.bias.grad),
        (ours.running_mean, own.running_mean),
        (ours.running_var, own.running_var),
    ):
        torch.testing.assert_close(mine.double(), true, rtol=1e-5, atol=2e-6 * room)
    assert ours.num_batches_tracked == 1


def test_how_rows_are_split_hardly_matters():
    """That is what it is for: the largest difference is one of the last bit."""
    x, slope = 3 + 2 * torch.randn(8, 3, 6, 7), torch.randn(8, 3, 6, 7)
    found = []
    for at_once in (1, 1 << 22):
        _, ours = norms(x.shape)
        sync_batchnorm.BLOCK_SIZE, before = at_once, sync_batchnorm.BLOCK_SIZE
        try:
            y = ours(x.requires_grad_())
            (gradient,) = torch.autograd.grad(y, x, slope)
        finally:
            sync_batchnorm.BLOCK_SIZE = before
        found.append((y.detach(), gradient))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=2e-7, atol=2e-7)


def test_an_evaluation_uses_the_running_statistics():
    own, ours = norms(SHAPES[0])
    x = torch.randn(SHAPES[0])
    torch.testing.assert_close(ours.eval()(x).double(), own.eval()(x.double()), rtol=1e-5, atol=1e-6)


def test_bf16_comes_out_as_it_went_in():
    _, ours = norms(SHAPES[0])
    x = torch.randn(SHAPES[0]).bfloat16().requires_grad_()
    y = ours(x)
    y.float().sum().backward()
    assert y.dtype == x.grad.dtype == torch.bfloat16 and ours.weight.grad.dtype == torch.float32
