"""Layers of flax.nnx that compute as those of the other frameworks, by which a trainer replaces a model's.

The models have nnx's own layers, channels last. In fp64, XLA's convolution on a CPU takes thirty times as long as a
matrix product with patches.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from zoo.trainer.jax.parallel import sum_over_ranks


class BatchNorm(nnx.BatchNorm):
    """Batch normalization of (N, ..., C) whose running variance is unbiased; nnx's is biased.

    Computed in fp32, or fp64 if the input is; the output has the input's type.

    Attributes:
        ranks: number of ranks that the statistics are over.
    """

    scale: nnx.Param
    bias: nnx.Param
    ranks: int = 1

    def __call__(self, x: Array, use_running_average: bool | None = None, **_: Any) -> Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        scale, bias, mean, variance = self.scale[...], self.bias[...], self.mean[...], self.var[...]
        if not self.use_running_average:
            y, batch_mean, unbiased = normalized(wide, scale, bias, self.epsilon, self.ranks)
            self.mean[...] = self.momentum * mean + (1 - self.momentum) * batch_mean
            self.var[...] = self.momentum * variance + (1 - self.momentum) * unbiased
        else:
            y = (wide - mean) * (scale * lax.rsqrt(variance + self.epsilon)) + bias
        return y.astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def normalized(x: Array, scale: Array, bias: Array, epsilon: float, ranks: int) -> tuple[Array, Array, Array]:
    """Return x normalized by its own statistics, over all ranks, and these: the mean, and the unbiased variance.

    The statistics have no gradient. That of x is written down: the one that JAX derives takes more passes over memory.
    """
    return _normalize(x, scale, bias, epsilon, ranks)[0]


def _normalize(x: Array, scale: Array, bias: Array, epsilon: float, ranks: int) -> tuple[Any, Any]:
    count = x.size // x.shape[-1] * ranks
    mean = sum_over_ranks(channel_sums(x), ranks) / count
    variance = sum_over_ranks(channel_sums(jnp.square(x - mean)), ranks) / count
    inverse = lax.rsqrt(variance + epsilon)
    y = (x - mean) * (scale * inverse) + bias
    return (y, mean, variance * (count / max(count - 1, 1))), (x, scale, mean, inverse)


def _gradients(epsilon: float, ranks: int, saved: Any, of_outputs: tuple[Array, Any, Any]) -> tuple[Array, ...]:
    (x, scale, mean, inverse), (of_y, _, _) = saved, of_outputs
    count = x.size // x.shape[-1] * ranks
    of_bias = channel_sums(of_y)
    of_scale = channel_sums(of_y * (x - mean)) * inverse
    shift, slope = (sum_over_ranks(total, ranks) / count for total in (of_bias, of_scale * inverse))
    return (of_y - shift - (x - mean) * slope) * (scale * inverse), of_scale, of_bias


normalized.defvjp(_normalize, _gradients)


def channel_sums(x: Array) -> Array:
    """Sum (N, ..., C) over all axes but the last.

    XLA's reduction on a CPU takes several times as long as a matrix product.
    """
    axes = tuple(range(x.ndim - 1))

    def by_product(x: Array) -> Array:
        samples = x.reshape(x.shape[0], -1, x.shape[-1])
        return jnp.einsum("nk,nkc->nc", jnp.ones(samples.shape[:2], x.dtype), samples).sum(0)

    return lax.platform_dependent(x, cpu=by_product, default=lambda x: x.sum(axes))


class Fp64Conv(nnx.Conv):
    """Convolution as a matrix product with patches."""

    def __call__(self, x: Array) -> Array:
        kernel = self.kernel[...]
        strides, dilations = _pair(self.strides), _pair(self.kernel_dilation)
        x = jnp.pad(x, ((0, 0), *_paddings(self.padding, x.shape[1:3], self.kernel_size, strides, dilations), (0, 0)))
        sizes = [
            (length - dilation * (window - 1) - 1) // stride + 1
            for length, window, stride, dilation in zip(x.shape[1:3], self.kernel_size, strides, dilations)
        ]
        patches = []
        for row in range(self.kernel_size[0]):
            for column in range(self.kernel_size[1]):
                starts = row * dilations[0], column * dilations[1]
                rows, columns = (
                    slice(start, start + stride * (size - 1) + 1, stride)
                    for start, stride, size in zip(starts, strides, sizes)
                )
                patches.append(x[:, rows, columns])
        product = self._product(jnp.stack(patches, 3), kernel.reshape(-1, *kernel.shape[2:]))
        return product if self.bias is None else product + self.bias[...]

    def _product(self, x: Array, kernel: Array) -> Array:
        """Multiply (N, H, W, elements, C) by a kernel (elements, C / groups, outputs)."""
        groups = self.feature_group_count
        grouped = x.reshape(*x.shape[:4], groups, -1)
        product = jnp.einsum("nhwegi,eigo->nhwgo", grouped, kernel.reshape(*kernel.shape[:2], groups, -1))
        return product.reshape(*x.shape[:3], -1)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _paddings(padding: Any, sizes: Any, windows: Any, strides: Any, dilations: Any) -> list[tuple[int, int]]:
    if isinstance(padding, str):
        effective = [dilation * (window - 1) + 1 for window, dilation in zip(windows, dilations)]
        return lax.padtype_to_pads(sizes, effective, strides, padding)
    both = _pair(padding)
    return [(each, each) if isinstance(each, int) else tuple(each) for each in both]
