"""Operations that Paddle's kernels round to fp32 even in fp64, computed without it.

These are their arguments that are no tensors: epsilon and momentum of a batch normalization, the weights of an
interpolation; numbers in formulas are mended in ops.py, and fused kernels of updates are not used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from zoo.trainer.paddle.batchnorm import SyncBatchNormFunction, num_elements
from zoo.trainer.pixels import bilinear_matrix

interpolate_in_fp32: Any = F.interpolate


@contextmanager
def default_fp64() -> Iterator[None]:
    """Create parameters in fp64 within the context."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


class _Fp64BatchNorm(nn.layer.norm._BatchNormBase):
    """Batch normalization of (N, C, ...) that updates its running variance with the unbiased one.

    Attributes:
        is_synced: statistics are over all ranks.
    """

    is_synced = False
    weight: paddle.Tensor
    bias: paddle.Tensor

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        if not self.training:
            return self._normalize(x - _broadcast(self._mean, x), self._variance)
        count = num_elements(x, self.is_synced)
        if self.is_synced:
            y, mean, variance = SyncBatchNormFunction.apply(x, self.weight, self.bias, self._epsilon, count)
        else:
            mean = x.mean(axes)
            centered = x - _broadcast(mean, x)
            variance = centered.square().mean(axes)
            y = self._normalize(centered, variance)
        with paddle.no_grad():
            for running, new in ((self._mean, mean), (self._variance, variance * (count / max(count - 1, 1)))):
                paddle.assign(self._momentum * running + (1 - self._momentum) * new, running)
        return y

    def _normalize(self, centered: paddle.Tensor, variance: paddle.Tensor) -> paddle.Tensor:
        factor = self.weight * paddle.rsqrt(variance + self._epsilon)
        return centered * _broadcast(factor, centered) + _broadcast(self.bias, centered)


class Fp64BatchNorm2D(_Fp64BatchNorm, nn.BatchNorm2D):
    pass


class Fp64BatchNorm3D(_Fp64BatchNorm, nn.BatchNorm3D):
    pass


REPLACEMENTS: dict[type, type] = {nn.BatchNorm2D: Fp64BatchNorm2D, nn.BatchNorm3D: Fp64BatchNorm3D}


def convert_to_fp64(model: nn.Layer, sync_bn: bool) -> None:
    """Make a model that was built in fp64 compute without rounding to fp32.

    Args:
        model: changed in place.
        sync_bn: normalize training batches with statistics over all ranks.
    """
    for layer in model.sublayers():
        if type(layer) in REPLACEMENTS:
            layer.__class__ = REPLACEMENTS[type(layer)]
            layer.is_synced = sync_bn
    replace_interpolation(paddle.float64)


def replace_interpolation(*dtypes: Any) -> None:
    """Interpolate tensors of these types by matrices, those of others as before; where models look it up."""
    setattr(F, "interpolate", partial(interpolate, dtypes))  # noqa: B010


def interpolate(
    dtypes: Sequence[Any],
    x: paddle.Tensor,
    size: Sequence[int] | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    *args: Any,
    **options: Any,
) -> paddle.Tensor:
    """Return F.interpolate of the arguments; bilinear and to a given size, of some types, as a product of matrices."""
    if x.dtype not in dtypes or mode != "bilinear" or size is None:
        return interpolate_in_fp32(x, size, scale_factor, mode, align_corners, *args, **options)
    wide = x if x.dtype == paddle.float64 else x.astype("float32")
    rows, columns = (
        paddle.to_tensor(bilinear_matrix(old, int(new), align_corners), dtype=wide.dtype, place=x.place)
        for old, new in zip(x.shape[2:], size)
    )
    return (rows @ wide @ columns.T).astype(x.dtype)


def _broadcast(values: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    """Reshape values (C,) so that they broadcast over x (N, C, ...)."""
    return values.reshape([1, -1] + [1] * (x.ndim - 2))
