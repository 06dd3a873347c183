"""Layers of flax.nnx that compute as those of the other frameworks, by which a trainer replaces a model's.

The models have nnx's own layers, channels last. In fp64, XLA's convolution on a CPU takes thirty times as long as a
matrix product with patches.
"""

from typing import Any

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
            axes, count = tuple(range(x.ndim - 1)), x.size // x.shape[-1] * self.ranks
            mean = sum_over_ranks(wide.sum(axes), self.ranks) / count
            variance = sum_over_ranks(jnp.square(wide - mean).sum(axes), self.ranks) / count
            unbiased = variance * (count / max(count - 1, 1))
            self.mean[...] = self._moved(self.mean[...], mean)
            self.var[...] = self._moved(self.var[...], unbiased)
        y = (wide - mean) * (scale * lax.rsqrt(variance + self.epsilon)) + bias
        return y.astype(x.dtype)

    def _moved(self, running: Array, value: Array) -> Array:
        return self.momentum * running + (1 - self.momentum) * lax.stop_gradient(value)


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
