"""Padding and epsilon of ResNets of MindSpore's projects, in every framework: the cases of padding_cases.py."""

import pytest

from tests.helpers import frameworks
from zoo.models.resnet.spec import Arch, same_padding


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.models.resnet.padding_cases"))
def test_padding(framework, module, case):
    frameworks.check(framework, module, case)


@pytest.mark.parametrize(
    "size, kernel, dilation, expected",
    [
        ((224, 224), 7, 1, (2, 3, 2, 3)),
        ((112, 112), 3, 1, (0, 1, 0, 1)),
        ((7, 8), 3, 1, (0, 1, 1, 1)),
        ((7, 8), 3, 2, (1, 2, 2, 2)),
        ((1, 2), 3, 1, (0, 1, 1, 1)),
        ((8, 7), 1, 1, (0, 0, 0, 0)),
    ],
)
def test_same_padding(size, kernel, dilation, expected):
    """Left, right, top and bottom of layers of stride 2, for (height, width)."""
    assert same_padding(*size, kernel, 2, dilation) == expected


def test_an_impossible_epsilon_is_refused():
    for bn_eps in (0.0, -1e-5, 1.0):
        with pytest.raises(ValueError, match="bn_eps"):
            Arch(bn_eps=bn_eps)
