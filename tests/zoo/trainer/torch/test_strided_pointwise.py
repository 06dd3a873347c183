"""Narrow 1x1 convolutions with a stride, beside fp64, in which oneDNN has no part."""

import pytest
import torch
from torch import nn

from tests.zoo.trainer.torch.extra_layer import converted
from zoo.trainer.plan import Mode
from zoo.trainer.torch import cpu_layers
from zoo.trainer.torch.cpu_layers import StridedPointwiseConv2d

# Channels in and out, images, pixels and stride; PyTorch 2.13 crashes with AVX-512, or has gradients that are 15 % off.
GEOMETRIES = [(8, 16, 16, 80, 2), (3, 16, 8, 160, 2), (12, 24, 16, 75, (3, 2))]


def results(conv, x, gradient):
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    y = conv(x)
    y.backward(gradient)
    return y.detach(), x.grad, *(parameter.grad for parameter in conv.parameters())


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_values_and_gradients_are_those_of_the_convolution(geometry):
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
    "other",
    [
        nn.Conv2d(8, 16, 1),
        nn.Conv2d(16, 16, 1, 2),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.Conv2d(8, 16, 1, 2, 1),
        nn.Conv2d(8, 16, 1, 2, groups=2),
    ],
    ids=str,
)
def test_other_convolutions_stay(other):
    cpu_layers.convert_strided(other)
    assert type(other) is nn.Conv2d


@pytest.mark.parametrize(
    "mode, is_converted",
    [
        (Mode("fp32", None, True, False), True),
        (Mode("fp32", None, True, True), True),
        (Mode("bf16", "O1", True, False), True),
        (Mode("fp32", None, False, False), False),
        (Mode("fp64", None, True, False), False),
    ],
    ids=str,
)
def test_models_are_converted_in_channels_last_format(mode, is_converted):
    assert isinstance(converted(nn.Conv2d(8, 16, 1, 2, bias=False), mode), StridedPointwiseConv2d) == is_converted
