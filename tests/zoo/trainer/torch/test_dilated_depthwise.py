"""Dilated depthwise convolutions as sums of shifted images, beside PyTorch's own."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from tests.zoo.trainer.torch.extra_layer import converted
from zoo.trainer.plan import Mode
from zoo.trainer.torch import cpu_layers
from zoo.trainer.torch.cpu_layers import DilatedDepthwiseConv2d

GEOMETRIES = [  # kernel, padding, dilation
    (3, 2, 2),
    (3, 4, 4),  # on 7 x 5 pixels: a row sees the one above or below, never both
    (3, 9, 9),  # the middle alone sees pixels
    ((3, 5), (3, 4), (3, 2)),
    ((1, 3), (0, 2), (1, 2)),
]


def conv(kernel, padding, dilation, bias=False):
    torch.manual_seed(0)
    return nn.Conv2d(6, 6, kernel, 1, padding, dilation, groups=6, bias=bias).double()


@pytest.mark.parametrize(
    "geometry, memory_format", list(product(GEOMETRIES, (torch.contiguous_format, torch.channels_last)))
)
def test_values_and_gradients_are_those_of_the_convolution(geometry, memory_format):
    plain = conv(*geometry, bias=geometry is GEOMETRIES[0])
    own = copy.deepcopy(plain)
    cpu_layers.convert_dilated(own)
    assert type(own) is DilatedDepthwiseConv2d and list(own.state_dict()) == list(plain.state_dict())
    x, gradient = torch.randn(2, 2, 6, 7, 5, dtype=torch.float64)
    results = []
    for module in (own, plain):
        source = x.to(memory_format=memory_format).requires_grad_()
        y = module(source)
        y.backward(gradient)
        results.append([y.detach(), source.grad, *(parameter.grad for parameter in module.parameters())])
        assert y.is_contiguous(memory_format=memory_format)
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-13)


def test_one_row_by_hand():
    own = conv((1, 3), (0, 2), (1, 2))
    cpu_layers.convert_dilated(own)
    with torch.no_grad():
        own.weight[:] = torch.tensor([100.0, 10.0, 1.0])
    row = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).expand(1, 6, 1, 4)
    np.testing.assert_array_equal(own(row)[0, 5, 0].detach(), [13, 24, 130, 240])


@pytest.mark.parametrize("needs_input, needs_weight", [(True, False), (False, True)])
def test_what_is_frozen_gets_no_gradient(needs_input, needs_weight):
    own = conv(3, 2, 2)
    cpu_layers.convert_dilated(own)
    own.weight.requires_grad_(needs_weight)
    x = torch.randn(1, 6, 4, 4, dtype=torch.float64, requires_grad=needs_input)
    own(x).sum().backward()
    assert (x.grad is not None, own.weight.grad is not None) == (needs_input, needs_weight)


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(6, 6, 3, padding=1, groups=6),  # not dilated
        nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=3),
        nn.Conv2d(6, 12, 3, padding=2, dilation=2, groups=6),
        nn.Conv2d(6, 6, 3, 2, 2, 2, 6),
        nn.Conv2d(6, 6, 3, padding=1, dilation=2, groups=6),  # a smaller output
        nn.Conv2d(6, 6, 2, padding=2, dilation=2, groups=6),
        nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=6, padding_mode="reflect"),
        nn.Conv2d(6, 6, 3, padding="same", dilation=2, groups=6),
        nn.Conv2d(1, 1, 3, padding=2, dilation=2),
    ],
    ids=str,
)
def test_other_convolutions_stay(other):
    cpu_layers.convert_dilated(other)
    assert type(other) is nn.Conv2d


@pytest.mark.parametrize(
    "mode, is_converted",
    [(Mode("fp32", None, True, False), True), (Mode("fp32", None, False, False), True)]
    + [(Mode("fp64", None, True, False), False), (Mode("bf16", "O1", True, False), False)],
    ids=str,
)
def test_models_are_converted_in_fp32_alone(mode, is_converted):
    layer = converted(nn.Conv2d(6, 6, 3, 1, 2, 2, 6, bias=False), mode)
    assert isinstance(layer, DilatedDepthwiseConv2d) == is_converted
