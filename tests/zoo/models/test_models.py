"""The models in every framework: the cases of model_cases.py and, against numpy, forward_cases.py."""

import pytest

from tests.helpers import frameworks
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.models.tsm_mobilenet_v2 import spec as mobile


@pytest.mark.parametrize(
    "framework, module, case",
    frameworks.parameters("zoo.models.model_cases", "zoo.models.forward_cases"),
)
def test_models(framework, module, case):
    frameworks.check(framework, module, case)


def test_the_state_of_a_mobilenet_is_that_of_upstream():
    """Shapes of shift_buffer in mit-han-lab's online_demo/mobilenet_v2_tsm.py."""
    expected = [(3, 56, 56)] + [(4, 28, 28)] * 2 + [(8, 14, 14)] * 3 + [(12, 14, 14)] * 2 + [(20, 7, 7)] * 2
    assert list(mobile.state_shapes(mobile.Arch(shift_direction="causal"), 224, 224)) == expected


def test_the_state_of_resnets():
    def shapes(**options):
        return list(tsm.state_shapes(tsm.Arch(shift_direction="causal", **options), 224, 200))

    first = [(8, 56, 50), (32, 56, 50), (32, 56, 50), (32, 56, 50)]  # the last enters layer2, whose stride follows
    assert shapes()[:5] == [*first, (64, 28, 25)] and len(shapes()) == 16
    assert len(shapes(depth=101)) == 18 and len(shapes(depth=101, shift_place="block")) == 33
    # of 4 and 8 channels, none is shifted
    assert shapes(depth=18, width=4, shift_div=9) == [(1, 14, 13), (1, 14, 13), (3, 7, 7)]
    assert shapes(shift_place="none") == []


@pytest.mark.parametrize("spec", [tsm, mobile])
def test_only_a_causal_model_has_a_state(spec):
    for direction in ("future", "past"):
        with pytest.raises(ValueError, match=r"^shift_direction: .*train one with model.shift_direction=causal"):
            spec.state_shapes(spec.Arch(shift_direction=direction), 224, 224)


@pytest.mark.parametrize("key", ["temporal_pool", "non_local"])
def test_what_looks_ahead_is_refused(key):
    with pytest.raises(ValueError, match=f"^{key}: .*shift_direction=causal"):
        tsm.Arch(shift_direction="causal", **{key: True})


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
    assert resnet.same_padding(*size, kernel, 2, dilation) == expected


def test_an_impossible_epsilon_is_refused():
    for bn_eps in (0.0, -1e-5, 1.0):
        with pytest.raises(ValueError, match="bn_eps"):
            resnet.Arch(bn_eps=bn_eps)
