"""Synchronized batch normalization on a CPU against PyTorch's batch normalization, with one rank.

tests/zoo/run/test_processes.py has several ranks.
"""

import pytest
import torch
from torch import nn

from zoo.trainer.torch import batchnorm

SHAPES = [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)]


def random_norms(shape):
    """Return PyTorch's batch normalization in float64 and the synchronized one with the same weights."""
    torch.manual_seed(0)
    reference = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm3d)(shape[1])
    with torch.no_grad():
        reference.weight.uniform_(0.5, 1.5)
        reference.bias.uniform_(-1, 1)
    norm = type(reference)(shape[1])
    norm.load_state_dict(reference.state_dict())
    model = nn.Sequential(norm)
    batchnorm.convert_sync_batchnorm(model, 1)
    return reference.to(torch.float64), model[0]


@pytest.mark.parametrize("block_size", [1, 1 << 22])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_gradients_and_statistics(monkeypatch, shape, layout, block_size):
    """Against float64, for a mean far from 0 too; all rows at once or one by one."""
    monkeypatch.setattr(batchnorm, "BLOCK_SIZE", block_size)
    reference, norm = random_norms(shape)
    x = 3 + 2 * torch.randn(shape)
    x = x.contiguous(memory_format=layout) if x.dim() == 4 else x
    x64 = x.double().requires_grad_()
    x.requires_grad_()
    gradient = torch.randn(shape)
    deviations = x64.detach().transpose(0, 1).flatten(1).std(1, unbiased=False)
    amplification = 1 + float(1 / deviations.min())  # of rounding, by the division
    y, expected = norm(x), reference(x64)
    y.backward(gradient)
    expected.backward(gradient.double())
    for result, value in (
        (y, expected),
        (x.grad, x64.grad),
        (norm.weight.grad, reference.weight.grad),
        (norm.bias.grad, reference.bias.grad),
        (norm.running_mean, reference.running_mean),
        (norm.running_var, reference.running_var),
    ):
        torch.testing.assert_close(result.double(), value, rtol=1e-5, atol=2e-6 * amplification)


def test_16_bits_are_normalized_in_fp32():
    """Where the mean is far from 0, its rounding to 16 bits would be an eighth of a deviation."""
    reference, norm = random_norms(SHAPES[0])
    x = (100 + 2 * torch.randn(SHAPES[0])).bfloat16()
    torch.testing.assert_close(norm(x).double(), reference(x.double()), rtol=2**-8, atol=2**-8)


def test_the_block_size_changes_the_last_bit_at_most(monkeypatch):
    x, gradient = 3 + 2 * torch.randn(8, 3, 6, 7), torch.randn(8, 3, 6, 7)
    results = []
    for block_size in (1, 1 << 22):
        _, norm = random_norms(x.shape)
        monkeypatch.setattr(batchnorm, "BLOCK_SIZE", block_size)
        y = norm(x.requires_grad_())
        results.append((y.detach(), *torch.autograd.grad(y, x, gradient)))
    for one_row, all_rows in zip(*results):
        torch.testing.assert_close(one_row, all_rows, rtol=2e-7, atol=2e-7)


def test_an_evaluation_uses_the_running_statistics():
    reference, norm = random_norms(SHAPES[0])
    x = torch.randn(SHAPES[0])
    torch.testing.assert_close(norm.eval()(x).double(), reference.eval()(x.double()), rtol=1e-5, atol=1e-6)


def test_bf16_inputs_give_bf16_outputs():
    _, norm = random_norms(SHAPES[0])
    x = torch.randn(SHAPES[0]).bfloat16().requires_grad_()
    y = norm(x)
    y.float().sum().backward()
    assert y.dtype == x.grad.dtype == torch.bfloat16 and norm.weight.grad.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_kernels_of_a_gpu(layout):
    """Against PyTorch's batch normalization in float64, with one rank."""
    reference, norm = random_norms((8, 3, 5, 6))
    x = (3 + 2 * torch.randn(8, 3, 5, 6)).contiguous(memory_format=layout)
    gradient, x64, x = torch.randn(x.shape), x.double().requires_grad_(), x.cuda().requires_grad_()
    norm.cuda()(x).backward(gradient.cuda())
    reference(x64).backward(gradient.double())
    results = [(x.grad, x64.grad), (norm.weight.grad, reference.weight.grad), (norm.bias.grad, reference.bias.grad)]
    results += [(norm.running_mean, reference.running_mean), (norm.running_var, reference.running_var)]
    for result, value in results:
        torch.testing.assert_close(result.cpu().double(), value, rtol=1e-4, atol=1e-5)
