"""Cases of what Paddle computes faster on a CPU: convolutions of small maps, PReLU (test_trainer.py)."""

import os
from contextlib import contextmanager
from unittest import mock

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.zoo.trainer.trainer_setup import make, make_tsm, random_clips
from zoo.models.resnet.paddle import SameConv2D
from zoo.trainer import device
from zoo.trainer.paddle import cpu_layers
from zoo.trainer.paddle.model import named_tensors

WINDOWS = [  # kernel, stride, padding, dilation, of both axes
    ((1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 1), (2, 2), (0, 0), (1, 1)),
    ((1, 1), (1, 1), (1, 0), (1, 1)),
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 3), (1, 1), (2, 2), (2, 2)),
    ((3, 2), (2, 1), (0, 2), (1, 2)),
]


@contextmanager
def products(columns=1 << 12, weights=0):
    """Compute convolutions with so many weights as products of so many columns."""
    with mock.patch.multiple(cpu_layers, MIN_WEIGHTS=weights, COLUMNS=columns):
        yield


def gradients(function, x, weight, wanted, of_output):
    """Return the output of a convolution and its gradients, None for what is frozen."""
    tensors = [paddle.to_tensor(array, stop_gradient=not needed) for array, needed in zip((x, weight), wanted)]
    y = function(*tensors)
    assert y.stop_gradient == (not any(wanted))
    if any(wanted):
        (y * paddle.to_tensor(of_output)).sum().backward()
    return [y.numpy(), *(None if tensor.grad is None else tensor.grad.numpy() for tensor in tensors)]


def case_values_and_gradients_are_those_of_a_convolution(backend):
    """All samples at once, two at a time and one by one; with a frozen input, a frozen weight, and both."""
    rng = np.random.default_rng(0)
    for kernel, stride, padding, dilation in WINDOWS:
        window = cpu_layers.Window(*map(list, (kernel, stride, padding, dilation)))
        x, weight = rng.standard_normal((5, 4, 7, 6)), rng.standard_normal((3, 4, *kernel))
        height, width = window.map_size(x.shape[2:])
        of_output = rng.standard_normal((5, 3, height, width))
        for dtype, tolerance in ((np.float64, 1e-13), (np.float32, 1e-5)):
            arrays = [array.astype(dtype) for array in (x, weight)]
            for wanted in ((True, True), (False, True), (True, False), (False, False)):
                expected = gradients(
                    lambda x, weight, options=(stride, padding, dilation): F.conv2d(x, weight, None, *options),
                    *arrays,
                    wanted,
                    of_output.astype(dtype),
                )
                for columns in (1 << 12, 2 * height * width + 1, 1):
                    with products(columns):
                        found = gradients(
                            lambda x, weight, window=window: cpu_layers._Convolution.apply(x, weight, window),
                            *arrays,
                            wanted,
                            of_output.astype(dtype),
                        )
                    for value, true in zip(found, expected, strict=True):
                        assert (value is None) == (true is None)
                        if value is not None:
                            assert value.dtype == dtype
                            np.testing.assert_allclose(value, true, 0, tolerance * np.abs(true).max(), err_msg=window)


def case_a_convolution_by_hand(backend):
    """Sums of 3 x 3 pixels of a 2 x 3 map of ones with zeros around it; the gradient counts the outputs of each."""
    x, weight = np.ones((2, 1, 2, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    window = cpu_layers.Window([3, 3], [1, 1], [1, 1], [1, 1])
    y, to_x, to_weight = gradients(
        lambda x, weight: cpu_layers._Convolution.apply(x, weight, window), x, weight, (True, True), np.ones_like(x)
    )
    np.testing.assert_array_equal(y, np.broadcast_to(np.array([4, 6, 4], np.float32), x.shape))
    np.testing.assert_array_equal(to_x, y)
    np.testing.assert_array_equal(to_weight[0, 0], 2 * np.array([[2, 3, 2], [4, 6, 4], [2, 3, 2]], np.float32))


def case_other_convolutions_are_left_alone(backend):
    """Groups, a bias and other padding; names and values of tensors remain."""
    plain = {"padding": 1, "bias_attr": False}
    layers = [nn.Conv2D(4, 4, 3, **plain), nn.Conv2D(4, 4, 3, 2, (0, 1), 2, bias_attr=False)]
    others = [
        {"groups": 2},
        {"bias_attr": None},
        {"padding": "SAME"},
        {"padding": [0, 0, 0, 1]},
        {"padding_mode": "circular"},
        {"data_format": "NHWC"},
    ]
    layers += [nn.Conv2D(4, 4, 3, **{**plain, **options}) for options in others]
    model = nn.Sequential(*layers, SameConv2D(4, 4, 3, 2))
    before = {name: tensor.numpy() for name, tensor in named_tensors(model).items()}
    cpu_layers.convert_convolutions(model)
    converted = [type(layer) is cpu_layers.CpuConv2D for layer in model]
    assert converted == [True] * 2 + [False] * (len(others) + 1)
    after = {name: tensor.numpy() for name, tensor in named_tensors(model).items()}
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def case_large_maps_and_small_weights_are_paddles(backend):
    layer = nn.Sequential(nn.Conv2D(4, 4, 3, padding=1, bias_attr=False))
    cpu_layers.convert_convolutions(layer)
    for side, weights, expected in ((8, 144, 1), (9, 144, 0), (8, 145, 0)):
        with products(weights=weights), mock.patch.object(cpu_layers._Convolution, "apply") as apply:
            layer(paddle.rand((2, 4, side, side)))
        assert apply.call_count == expected, (side, weights)


def trained(backend, weights, **plan):
    """Return the gradients and the predictions of a small TSM, and how many of its convolutions are products."""
    with products(weights=weights):
        trainer, _ = make_tsm(backend, **plan)
        batch, apply = trainer.to_device(random_clips()), cpu_layers._Convolution.apply
        with mock.patch.object(cpu_layers._Convolution, "apply", side_effect=apply) as calls:
            trainer.step([batch], 0.0, 0)
            count = calls.call_count
            return trainer.gradients(), trainer.predict({"video": batch["video"]}), count


def case_an_update_with_products(backend):
    """Also where activations are computed again."""
    gradients, scores, count = trained(backend, 1 << 30)
    assert count == 0
    for plan in ({}, {"checkpointed_modules": ("layer1.0", "layer4.1")}):
        found, found_scores, count = trained(backend, 0, **plan)
        assert count >= 12  # all but the first, whose map is 8 x 8 for 16 x 16 pixels, and those of one pixel
        scale = max(np.abs(array).max() for array in gradients.values())
        for name, array in gradients.items():
            np.testing.assert_allclose(found[name], array, 0, 2e-5 * scale, err_msg=name)
        np.testing.assert_allclose(found_scores, scores, 0, 2e-5 * np.abs(scores).max())


def case_where_layers_are_converted(backend):
    """On a CPU in fp32, not where Paddle compiles, nor in fp64, which is compared digit by digit."""
    for mode, expected in (
        (backend.FP32_MODES[0], True),
        (backend.FP32_MODES[1], False),
        (backend.FP64_MODES[0], False),
    ):
        layers = make(backend, mode).model.sublayers()
        assert any(type(layer) is cpu_layers.CpuConv2D for layer in layers) == expected, mode


def case_values_and_gradients_are_those_of_a_prelu(backend):
    """Of any slopes, zeros, infinities and NaN, and with frozen inputs or slopes."""
    rng = np.random.default_rng(0)
    x, slopes = rng.standard_normal((3, 4, 5, 2)).astype(np.float32), np.array([0.25, -0.5, 0, 3], np.float32)
    x[0, :, 0, 0], x[0, :, 1, 0] = 0.0, -0.0
    of_output = rng.standard_normal(x.shape).astype(np.float32)
    model = nn.Sequential(nn.PReLU(4), nn.PReLU(1), nn.PReLU(4, data_format="NHWC"))
    cpu_layers.convert_prelus(model)
    assert [type(layer) is cpu_layers.CpuPReLU for layer in model] == [True, False, False]
    for wanted in ((True, True), (False, True), (True, False), (False, False)):
        y, to_x, to_slopes = gradients(cpu_layers._PReLUFunction.apply, x, slopes, wanted, of_output)
        slope = np.where(x > 0, 1, slopes[:, None, None])
        np.testing.assert_array_equal(y, x * slope)
        if wanted[0]:
            np.testing.assert_array_equal(to_x, of_output * slope)
        if wanted[1]:
            true = np.where(x > 0, 0, x.astype(np.float64) * of_output).sum((0, 2, 3))
            np.testing.assert_allclose(to_slopes, true, 1e-5, 1e-5)
        assert (to_x is not None, to_slopes is not None) == wanted
    layer, special = model[0], np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    layer._weight.set_value(np.full(4, 0.5, np.float32))
    y = layer(paddle.to_tensor(np.broadcast_to(special[:, None], (1, 4, 4, 1)).copy())).numpy()
    np.testing.assert_array_equal(y[0, 2], special[:, None] * np.array([[1], [0.5], [1], [1]], np.float32))


def case_a_process_is_set_up_for_a_cpu(backend):
    assert device.VARIABLE in os.environ or not device.needs_variable()
    assert device.keep_freed_memory() == (os.confstr("CS_GNU_LIBC_VERSION") is not None)
