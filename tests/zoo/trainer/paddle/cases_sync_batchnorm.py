"""Cases of Paddle's batch normalisation over all ranks, with one; tests/zoo/trainer/paddle/test_synchronised.py runs them."""

import numpy as np
import paddle
import pytest
from paddle import nn

from data.errors import UserError
from tests.zoo.trainer.paddle.cases import make
from zoo.trainer.paddle import sync_batchnorm

SHAPES = [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)]


def drawn(shape):
    rng = np.random.default_rng(0)
    channel = rng.uniform(0.5, 1.5, shape[1]), rng.uniform(-1, 1, shape[1])
    layer = (nn.BatchNorm2D if len(shape) == 4 else nn.BatchNorm3D)(shape[1])
    layer.weight.set_value(channel[0].astype(np.float32))
    layer.bias.set_value(channel[1].astype(np.float32))
    x, slope = 3 + 2 * rng.standard_normal(shape), rng.standard_normal(shape)
    return (
        sync_batchnorm.convert_sync_batchnorm(nn.Sequential(layer), True)[0],
        x.astype(np.float32),
        slope.astype(np.float32),
    )


def truth(layer, x, slope):
    """Output, gradients, mean and unbiased variance in float64, by the formulas of arXiv:1502.03167."""
    x, slope, weight, bias = (np.asarray(each, np.float64) for each in (x, slope, layer.weight, layer.bias))
    axes, beside = (0, *range(2, x.ndim)), [1, -1] + [1] * (x.ndim - 2)
    count = x.size // x.shape[1]
    mean, variance = x.mean(axes), x.var(axes)
    scale = (1 / np.sqrt(variance + layer._epsilon)).reshape(beside)
    normal = (x - mean.reshape(beside)) * scale
    by_bias, by_weight = slope.sum(axes), (slope * normal).sum(axes)
    weight, shift, tilt = (each.reshape(beside) for each in (weight, by_bias, by_weight))
    by_x = weight * scale * (slope - (shift + normal * tilt) / count)
    y = normal * weight + bias.reshape(beside)
    return y, by_x, by_weight, by_bias, mean, variance * count / (count - 1), variance


def case_output_gradients_and_statistics():
    """Against float64, for a mean far from 0 too; a block at once or row by row."""
    for shape in SHAPES:
        for at_once in (1, 1 << 18):
            sync_batchnorm.CHUNK, before = at_once, sync_batchnorm.CHUNK
            try:
                layer, x, slope = drawn(shape)
                *expected, mean, unbiased, variance = truth(layer, x, slope)
                x = paddle.to_tensor(x, stop_gradient=False)
                y = layer(x)
                (y * paddle.to_tensor(slope)).sum().backward()
            finally:
                sync_batchnorm.CHUNK = before
            room = 1 + float(1 / np.sqrt(variance.min()))  # by which a normalisation amplifies rounding
            running = 0.1 * mean, 0.9 + 0.1 * unbiased
            found = y, x.grad, layer.weight.grad, layer.bias.grad, layer._mean, layer._variance
            for mine, true in zip(found, (*expected, *running)):
                np.testing.assert_allclose(mine.numpy(), true, rtol=1e-5, atol=2e-6 * room, err_msg=f"{shape}")


def case_frozen_weights_get_no_gradient():
    layer, x, slope = drawn(SHAPES[0])
    expected = truth(layer, x, slope)[1]
    layer.weight.stop_gradient = layer.bias.stop_gradient = True
    x = paddle.to_tensor(x, stop_gradient=False)
    (layer(x) * paddle.to_tensor(slope)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert layer.weight.grad is None and layer.bias.grad is None


def case_an_evaluation_uses_the_running_statistics():
    layer, x, _ = drawn(SHAPES[0])
    layer.eval()
    y = layer(paddle.to_tensor(x)).numpy()
    weight, bias = (each.numpy().reshape(1, -1, 1, 1) for each in (layer.weight, layer.bias))
    np.testing.assert_allclose(y, x / np.sqrt(1 + layer._epsilon) * weight + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer._mean.numpy(), np.zeros(3, np.float32))


def case_it_is_not_compiled():
    with pytest.raises(UserError, match="train.sync_bn: to_static cannot compile it on a CPU"):
        make(compiled=True, sync_bn=True)
    make(sync_bn=True)
