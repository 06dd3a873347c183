"""Layers that the trainer computes in its own way on a CPU, beside PyTorch's own."""

import copy
import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.frameworks import adapter
from tests.zoo.trainer.trainer_setup import make
from zoo.trainer.plan import Mode
from zoo.trainer.torch import cpu_layers
from zoo.trainer.torch.cpu_layers import (
    AccurateBatchNorm2d,
    DilatedDepthwiseConv2d,
    EmulatedBF16Conv2d,
    StridedPointwiseConv2d,
    VectorizedPReLU,
)

DILATED = [  # kernel, padding, dilation
    (3, 2, 2),
    (3, 4, 4),  # on 7 x 5 pixels: a row sees the one above or below, never both
    (3, 9, 9),  # the middle alone sees pixels
    ((3, 5), (3, 4), (3, 2)),
    ((1, 3), (0, 2), (1, 2)),
]

# Channels in and out, images, pixels and stride; PyTorch 2.13 crashes with AVX-512, or has gradients that are 15 % off.
STRIDED = [(8, 16, 16, 80, 2), (3, 16, 8, 160, 2), (12, 24, 16, 75, (3, 2))]


def results(conv, x, gradient, memory_format=torch.channels_last):
    """Return the output and all gradients."""
    x = x.to(memory_format=memory_format).requires_grad_()
    y = conv(x)
    y.backward(gradient)
    assert y.is_contiguous(memory_format=memory_format)
    return y.detach(), x.grad, *(parameter.grad for parameter in conv.parameters())


def dilated(kernel, padding, dilation, bias=False):
    torch.manual_seed(0)
    return nn.Conv2d(6, 6, kernel, 1, padding, dilation, groups=6, bias=bias).double()


@pytest.mark.parametrize(
    "geometry, memory_format", list(product(DILATED, (torch.contiguous_format, torch.channels_last)))
)
def test_values_and_gradients_of_dilated_depthwise_convolutions(geometry, memory_format):
    """As sums of shifted images."""
    plain = dilated(*geometry, bias=geometry is DILATED[0])
    own = copy.deepcopy(plain)
    cpu_layers.convert_dilated(own)
    assert type(own) is DilatedDepthwiseConv2d and list(own.state_dict()) == list(plain.state_dict())
    x, gradient = torch.randn(2, 2, 6, 7, 5, dtype=torch.float64)
    found, expected = (results(module, x, gradient, memory_format) for module in (own, plain))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_one_row_of_a_dilated_convolution_by_hand():
    own = dilated((1, 3), (0, 2), (1, 2))
    cpu_layers.convert_dilated(own)
    with torch.no_grad():
        own.weight[:] = torch.tensor([100.0, 10.0, 1.0])
    row = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).expand(1, 6, 1, 4)
    np.testing.assert_array_equal(own(row)[0, 5, 0].detach(), [13, 24, 130, 240])


@pytest.mark.parametrize("needs_input, needs_weight", [(True, False), (False, True)])
def test_what_is_frozen_gets_no_gradient(needs_input, needs_weight):
    own = dilated(3, 2, 2)
    cpu_layers.convert_dilated(own)
    own.weight.requires_grad_(needs_weight)
    x = torch.randn(1, 6, 4, 4, dtype=torch.float64, requires_grad=needs_input)
    own(x).sum().backward()
    assert (x.grad is not None, own.weight.grad is not None) == (needs_input, needs_weight)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_prelu_has_the_bits_of_pytorch(memory_format):
    torch.manual_seed(0)
    plain = nn.PReLU(6)
    with torch.no_grad():
        plain.weight[:] = torch.tensor([0.25, -0.5, 0, 1, 3, 1e-3])
    own = copy.deepcopy(plain)
    cpu_layers.convert_prelu(own)
    x, gradient = torch.randn(2, 4, 6, 37, 41)
    x[:, :, :4] = torch.tensor([0.0, -0.0, 1e-40, -1e-40])[:, None]
    gradient = gradient.to(memory_format=memory_format)
    for found, expected in zip(*(results(module, x, gradient, memory_format) for module in (own, plain)), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "shape", [(8, 64, 56, 56), (3, 24, 77, 91), (9, 8, 31, 31), (8200, 5, 1, 1), (2, 5, 3, 3)], ids=str
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batch_normalization_beside_fp64(shape, memory_format):
    """PyTorch's own variances of the first shape are off by 9e-5 with one thread, its gradients of weights by 1e-3."""
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(shape[1], eps=1e-3, momentum=0.3)
    plain.num_batches_tracked = None  # as in a trainer
    nn.init.uniform_(plain.weight)
    own = copy.deepcopy(plain)
    cpu_layers.convert_batchnorm(own)
    assert type(own) is AccurateBatchNorm2d and list(own.state_dict()) == list(plain.state_dict())
    x, gradient = torch.randn(shape).relu_() + 0.3, torch.randn(shape)
    expected = results(plain.double(), x.double(), gradient.double(), memory_format)
    found = results(own, x, gradient.to(memory_format=memory_format), memory_format)
    for tensor, value in zip((*found, *own.buffers()), (*expected, *plain.buffers()), strict=True):
        assert (tensor.double() - value).norm() <= 2e-5 * value.norm()
    assert torch.allclose(own.running_var.double(), plain.running_var, rtol=5e-6)
    with torch.no_grad():
        torch.testing.assert_close(own.eval()(x), plain.eval()(x.double()).float())


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_batch_normalization_with_frozen_parameters(frozen):
    own = nn.BatchNorm2d(3)
    cpu_layers.convert_batchnorm(own)
    getattr(own, frozen).requires_grad_(False)
    x = torch.randn(2, 3, 64, 65).to(memory_format=torch.channels_last)
    own(x).square().sum().backward()
    assert [p.grad is None for p in (own.weight, own.bias)] == [frozen == "weight", frozen == "bias"]


@pytest.mark.parametrize("geometry", STRIDED, ids=str)
def test_values_and_gradients_of_strided_pointwise_convolutions(geometry):
    """Narrow ones, beside fp64, in which oneDNN has no part."""
    channels, outputs, images, size, stride = geometry
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, outputs, 1, stride).to(memory_format=torch.channels_last)
    plain = nn.Conv2d(channels, outputs, 1, stride).double()
    plain.load_state_dict(conv.state_dict())
    cpu_layers.convert_strided(conv)
    assert type(conv) is StridedPointwiseConv2d and list(conv.state_dict()) == list(plain.state_dict())
    x = torch.randn(images, channels, size, size)
    gradient = torch.randn(plain(x.double()).shape)
    expected = results(plain, x.double(), gradient.double())
    for found, value in zip(results(conv, x, gradient), expected, strict=True):
        assert (found.double() - value).abs().max() <= 1e-5 * value.abs().max()


@pytest.mark.parametrize(
    "convert, other",
    [
        ("convert_dilated", nn.Conv2d(6, 6, 3, padding=1, groups=6)),  # not dilated
        ("convert_dilated", nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=3)),
        ("convert_dilated", nn.Conv2d(6, 12, 3, padding=2, dilation=2, groups=6)),
        ("convert_dilated", nn.Conv2d(6, 6, 3, 2, 2, 2, 6)),
        ("convert_dilated", nn.Conv2d(6, 6, 3, padding=1, dilation=2, groups=6)),  # a smaller output
        ("convert_dilated", nn.Conv2d(6, 6, 2, padding=2, dilation=2, groups=6)),
        ("convert_dilated", nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6, padding_mode="reflect")),
        ("convert_dilated", nn.Conv2d(6, 6, 3, padding="same", dilation=2, groups=6)),
        ("convert_dilated", nn.Conv2d(1, 1, 3, padding=2, dilation=2)),
        ("convert_strided", nn.Conv2d(8, 16, 1)),
        ("convert_strided", nn.Conv2d(16, 16, 1, 2)),
        ("convert_strided", nn.Conv2d(8, 16, 3, 2, 1)),
        ("convert_strided", nn.Conv2d(8, 16, 1, 2, 1)),
        ("convert_strided", nn.Conv2d(8, 16, 1, 2, groups=2)),
        ("convert_prelu", nn.PReLU()),  # one slope for all channels
        ("convert_batchnorm", nn.BatchNorm3d(4)),
        ("emulate_bf16", nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")),
        ("emulate_bf16", nn.Conv2d(8, 8, 3, padding="same")),
    ],
    ids=str,
)
def test_other_layers_stay(convert, other):
    kind, model = type(other), nn.Sequential(other)
    getattr(cpu_layers, convert)(model, *([False] if convert == "emulate_bf16" else []))
    assert type(model[0]) is kind


FP32, PLAIN = Mode("fp32", None, True, False), Mode("fp32", None, False, False)
FP64, BF16 = Mode("fp64", None, True, False), Mode("bf16", "O1", True, False)
NARROW, DEPTHWISE = nn.Conv2d(8, 16, 1, 2, bias=False), nn.Conv2d(6, 6, 3, 1, 2, 2, 6, bias=False)
SLOPES = nn.PReLU(6)


@pytest.mark.parametrize(
    "layer, kind, modes",
    [
        (NARROW, StridedPointwiseConv2d, (FP32, FP32._replace(compile=True), BF16)),  # in channels-last format
        (DEPTHWISE, DilatedDepthwiseConv2d, (FP32, PLAIN)),  # in fp32 alone
        (SLOPES, VectorizedPReLU, (FP32, PLAIN)),
    ],
)
def test_layers_are_converted_in_some_modes(layer, kind, modes):
    backend = adapter("torch")

    class Extended(backend.Tiny):
        def __init__(self, arch):
            super().__init__(arch)
            self.extra = copy.deepcopy(layer)

    extended = SimpleNamespace(**{**vars(backend), "Tiny": Extended})
    for mode in (FP32, FP32._replace(compile=True), PLAIN, FP64, BF16):
        if kind is StridedPointwiseConv2d or not mode.compile:
            assert isinstance(make(extended, mode).model.extra, kind) == (mode in modes), mode


def test_emulated_convolutions_equal_bf16_convolutions():
    """Against float64 on the rounded operands, to the last bit of bf16, forward and backward; fp32 stays the same."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False))
    emulated = copy.deepcopy(plain)
    cpu_layers.emulate_bf16(emulated, has_bf16=False)
    assert type(emulated[0]) is EmulatedBF16Conv2d
    x = torch.randn(2, 8, 9, 9, requires_grad=True)
    assert torch.equal(emulated(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        y = emulated(x)
    assert y.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(y.float().square().mean(), [x], retain_graph=True)
    y.float().square().mean().backward()

    source = x.detach().bfloat16().double().requires_grad_()
    exact = copy.deepcopy(plain).double()
    exact[0].weight.data = plain[0].weight.data.bfloat16().double()
    expected = exact(source)
    expected.square().mean().backward()
    for result, value in ((y, expected), (gradient, source.grad), (emulated[0].weight.grad, exact[0].weight.grad)):
        assert (result.double() - value).abs().max() <= 2**-7 * value.abs().max()
    torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=1e-6)
    assert not torch.equal(y.float(), plain(x))


@pytest.mark.parametrize("kernel, pixels, stride", [(3, 1, 2), (7, 2, 3)])
def test_weights_that_see_padding_alone_have_no_gradient_in_bf16(kernel, pixels, stride):
    """oneDNN left NaN there, or what else the memory held."""
    conv = nn.Conv2d(16, 32, kernel, stride, kernel // 2, bias=False)
    cpu_layers.emulate_bf16(nn.Sequential(conv), has_bf16=True)
    x = torch.randn(6, 16, pixels, pixels)
    for _ in range(5):
        torch.full((32, 16, kernel, kernel), math.nan)  # is freed at once, and the gradient may get this memory
        with torch.autocast("cpu", torch.bfloat16):
            y = conv(x)
        (gradient,) = torch.autograd.grad(y.float().sum(), conv.weight)
        middle = slice(kernel // 2, kernel // 2 + pixels)
        expected = torch.zeros_like(gradient)
        expected[:, :, middle, middle] = x.bfloat16().float().sum(0)
        torch.testing.assert_close(gradient, expected, rtol=2**-7, atol=2**-7)


def test_emulated_convolutions_save_16_bits_for_the_backward_pass():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8),
        torch.nn.Conv2d(8, 4, 1),
    )
    reference = copy.deepcopy(model).to(torch.bfloat16)  # PyTorch's own bf16, by plain loops
    cpu_layers.emulate_bf16(model, has_bf16=False)
    x, dtypes = torch.randn(2, 3, 9, 9), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: dtypes.append(tensor.dtype) or tensor, lambda tensor: tensor
    )
    with hooks, torch.autocast("cpu", torch.bfloat16):
        y = model(x)
    assert dtypes and set(dtypes) == {torch.bfloat16}
    y.float().square().mean().backward()
    reference(x.bfloat16()).float().square().mean().backward()
    for emulated, native in zip(model.parameters(), reference.parameters()):
        assert (emulated.grad - native.grad.float()).abs().max() <= 2**-6 * native.grad.abs().max().float()
