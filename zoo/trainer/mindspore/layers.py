"""Cells for what MindSpore's own do not compute, or not exactly: pixels, statistics over all ranks on a CPU, and fp64.

Convolutions, batch normalizations and PReLU have no kernels for fp64 on a CPU. Interpolation, average pooling, sort,
log_softmax, masked_fill, the gradient of a max pooling and every operation of a tensor and a Python number have, but
round to fp32; topk, select and max pooling with explicit padding do not. The replacements of cells read all geometry
from the cell that they replace.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.data.batch import Field
from zoo.data.errors import Option
from zoo.trainer.mindspore.ops import constant
from zoo.trainer.mindspore.parallel import SumOverRanks
from zoo.trainer.pixels import average_matrix, bilinear_matrix, channels_first, scale_and_offset
from zoo.trainer.world import UnsupportedPrecision

interpolate_in_fp32, avg_pool2d_in_fp32, relu6_in_fp32 = ops.interpolate, ops.avg_pool2d, ops.relu6


class PixelNormalization(nn.Cell):
    """uint8 pixels (N, ..., H, W, C) -> normalized (N, ..., C, H, W) of type dtype.

    A field without pixels is unchanged, but fp64 if dtype is.
    """

    def __init__(self, field: Field, dtype: mstype.Type = mstype.float32):
        super().__init__()
        constants = scale_and_offset(field, np.float64)
        self.has_pixels, self.dtype = constants is not None, dtype
        self.widens = dtype == mstype.float64 and field.dtype.startswith("float")
        if constants is not None:
            self.factor, self.offset = (Tensor(array, dtype) for array in constants)
            self.axes = channels_first(1 + len(field.shape))

    def construct(self, x: Tensor) -> Tensor:
        if not self.has_pixels:
            return x.astype(self.dtype) if self.widens else x
        return ops.transpose(x.astype(self.dtype) * self.factor + self.offset, self.axes)


class SyncBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d in training mode with statistics over all ranks.

    On CPUs in float64, so that the result does not depend on how samples are distributed over ranks.

    Attributes:
        all_reduce: the collective; None for one rank.
        wide_type: floating-point type of the computation.
    """

    world_size: int
    all_reduce: Any
    wide_type: Any

    def construct(self, x: Tensor) -> Tensor:
        axes = (0, 2, 3)
        count = x.size // x.shape[1] * self.world_size  # every rank has the same batch size
        wide = x.astype(self.wide_type)
        mean = self._sum_over_ranks(wide.sum(axes)) / count
        centered = wide - mean.reshape(1, -1, 1, 1)
        variance = self._sum_over_ranks((centered * centered).sum(axes)) / count
        old_weight = 1 - self.momentum  # MindSpore stores the weight of the new statistics
        ops.assign(self.moving_mean, old_weight * self.moving_mean + (1 - old_weight) * mean.astype(mstype.float32))
        unbiased = (variance * (count / max(count - 1, 1))).astype(mstype.float32)
        ops.assign(self.moving_variance, old_weight * self.moving_variance + (1 - old_weight) * unbiased)
        factor = self.gamma * ops.rsqrt(variance + self.eps)
        return (centered * factor.reshape(1, -1, 1, 1) + self.beta.reshape(1, -1, 1, 1)).astype(x.dtype)

    def _sum_over_ranks(self, x: Tensor) -> Tensor:
        return self.all_reduce(x) if self.world_size > 1 else x


def convert_sync_batchnorm(model: nn.Cell, world_size: int, on_cpu: bool) -> None:
    """Make the batch normalizations of a model in training mode use statistics over all ranks, in place."""
    for _, cell in model.cells_and_names():
        if type(cell) is nn.BatchNorm2d and cell.use_batch_statistics is not False:
            cell.__class__ = SyncBatchNorm2d
            cell.world_size, cell.all_reduce = world_size, SumOverRanks(world_size) if world_size > 1 else None
            cell.wide_type = mstype.float64 if on_cpu else mstype.float32


class Fp64Conv2d(nn.Conv2d):
    """Convolution as a matrix product with the patches of the input."""

    def construct(self, x: Tensor) -> Tensor:
        if self.kernel_size == (1, 1) and self.stride == (1, 1) and self.padding in (0, (0, 0, 0, 0)):
            size, patches = x.shape[2:], x.reshape(x.shape[0], x.shape[1], -1)
        else:
            padding = self.paddings(x.shape[2:])
            size = self.output_size(x.shape[2:], padding)
            top, bottom, left, right = padding
            if top != bottom or left != right:
                x, top, left = pad(x, padding, 0.0), 0, 0
            # Not padded by ops.pad: in a graph, its gradient after that of ops.unfold is wrong.
            patches = ops.unfold(x, self.kernel_size, self.dilation, (top, left), self.stride)
        y = self.product(patches).reshape((x.shape[0], self.out_channels) + size)
        return y + self.bias.reshape(1, -1, 1, 1) if self.has_bias else y

    def product(self, patches: Tensor) -> Tensor:
        """Multiply (N, C * kernel size, L) by the weight: (N, outputs, L), perhaps with an axis for the groups."""
        if self.group == 1:
            return ops.matmul(self.weight.reshape(self.out_channels, -1), patches)
        grouped = patches.reshape(patches.shape[0], self.group, -1, patches.shape[2])
        if self.group == self.out_channels:
            return (grouped * self.weight.reshape(1, self.group, -1, 1)).sum(2)
        return ops.matmul(self.weight.reshape(self.group, self.out_channels // self.group, -1), grouped)

    def paddings(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return top, bottom, left and right padding for an input of (height, width)."""
        if self.pad_mode == "valid":
            return 0, 0, 0, 0
        if self.pad_mode == "pad":
            return (self.padding,) * 4 if isinstance(self.padding, int) else self.padding
        return same_paddings(size, self.kernel_size, self.stride, self.dilation)

    def output_size(self, size: tuple[int, int], padding: tuple[int, int, int, int]) -> tuple[int, int]:
        sizes: Any = ()
        for axis in (0, 1):
            window = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
            padded = size[axis] + padding[2 * axis] + padding[2 * axis + 1]
            sizes += ((padded - window) // self.stride[axis] + 1,)
        return sizes


class Fp64Conv3d(nn.Conv3d):
    """Convolution with a kernel of one element."""

    def construct(self, x: Tensor) -> Tensor:
        y = ops.matmul(self.weight.reshape(self.out_channels, -1), x.reshape(x.shape[0], x.shape[1], -1))
        y = y.reshape((x.shape[0], self.out_channels) + x.shape[2:])
        return y + self.bias.reshape(1, -1, 1, 1, 1) if self.has_bias else y


class Fp64BatchNorm2d(nn.BatchNorm2d):
    """Batch normalization from its definition; the running variance is updated with the unbiased one.

    Attributes:
        ranks: number of ranks that the statistics are over.
        all_reduce: sum over them; None for one rank.
        epsilon, old_weight, new_weight: of the normalization and of the running statistics, in fp64.
    """

    ranks: int
    all_reduce: Any
    epsilon: Tensor
    old_weight: Tensor
    new_weight: Tensor

    def construct(self, x: Tensor) -> Tensor:
        uses_batch = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        if not uses_batch:
            return self.normalize(x - self.moving_mean.reshape(1, -1, 1, 1), self.moving_variance)
        count = x.size // x.shape[1] * self.ranks  # every rank has the same batch size
        mean = self.sum_over_ranks(x.sum((0, 2, 3))) / count
        centered = x - mean.reshape(1, -1, 1, 1)
        variance = self.sum_over_ranks((centered * centered).sum((0, 2, 3))) / count
        unbiased = variance * count / max(count - 1, 1)
        ops.assign(self.moving_mean, self.old_weight * self.moving_mean + self.new_weight * mean)
        ops.assign(self.moving_variance, self.old_weight * self.moving_variance + self.new_weight * unbiased)
        return self.normalize(centered, variance)

    def normalize(self, centered: Tensor, variance: Tensor) -> Tensor:
        factor = self.gamma / ops.sqrt(variance + self.epsilon)
        return centered * factor.reshape(1, -1, 1, 1) + self.beta.reshape(1, -1, 1, 1)

    def sum_over_ranks(self, x: Tensor) -> Tensor:
        return x if self.all_reduce is None else self.all_reduce(x)


class Fp64MaxPool2d(nn.MaxPool2d):
    """Max pooling that is padded to the same size or not at all; with these paddings, MindSpore's gradient is fp32.

    Attributes:
        windows: max pooling of (N, C, 1, H, W).
    """

    windows: Any

    def construct(self, x: Tensor) -> Tensor:
        if self.pad_mode == "SAME":
            x = pad(x, same_paddings(x.shape[2:], pair(self.kernel_size), pair(self.stride), (1, 1)), -1e300)
        return self.windows(x.expand_dims(2))[0].squeeze(2)


class RepeatablePReLU(nn.PReLU):
    """PReLU of differentiable operations; at 0 the gradient is the slope, as in all frameworks' kernels.

    MindSpore's kernel for the gradient on a CPU has no fp64, and is not repeatable: it adds the sums of threads in the
    order in which they end.
    """

    def construct(self, x: Tensor) -> Tensor:
        return ops.select(x > 0, x, self.w.reshape((1, -1) + (1,) * (x.ndim - 2)) * x)


REPLACEMENTS: dict[type, type] = {
    nn.Conv2d: Fp64Conv2d,
    nn.Conv3d: Fp64Conv3d,
    nn.BatchNorm2d: Fp64BatchNorm2d,
    nn.PReLU: RepeatablePReLU,
}
UNSUPPORTED = (nn.Conv1d, nn.Conv2dTranspose, nn.Conv3dTranspose, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def convert_prelu(model: nn.Cell) -> None:
    """Make the PReLUs of a model compute as RepeatablePReLU."""
    for _, cell in model.cells_and_names():
        if type(cell) is nn.PReLU:
            cell.__class__ = RepeatablePReLU


def convert_to_fp64(model: nn.Cell, sync_ranks: int = 1) -> nn.Cell:
    """Make a model compute in fp64, in place, and return it.

    Args:
        model: its parameters become fp64. Attributes of its own cells that are Python numbers become tensors.
        sync_ranks: number of ranks over which training batches are normalized.
    """
    for name, cell in model.cells_and_names():
        if type(cell) in UNSUPPORTED or (type(cell) is nn.Conv3d and not _is_pointwise(cell)):
            raise UnsupportedPrecision(
                f"train.precision: MindSpore has no fp64 for {type(cell).__name__} ({name}) on a CPU; use fp32 or ",
                Option("--framework", "torch"),
            )
        for parameter in cell._params.values():
            parameter.set_dtype(mstype.float64)
        if type(cell) is nn.BatchNorm2d:
            cell.ranks, cell.all_reduce = sync_ranks, SumOverRanks(sync_ranks) if sync_ranks > 1 else None
            cell.epsilon, cell.new_weight = constant(cell.eps), constant(cell.momentum)
            cell.old_weight = constant(1 - cell.momentum)
        if type(cell) is nn.MaxPool2d and not cell.use_pad:
            kernel, stride = pair(cell.kernel_size), pair(cell.stride)
            cell.windows = ops.MaxPool3DWithArgmax((1, *kernel), (1, *stride), (0, 0, 0))
            cell.__class__ = Fp64MaxPool2d
        cell.__class__ = REPLACEMENTS.get(type(cell), type(cell))
        if not type(cell).__module__.startswith(("mindspore.", __name__)):
            for key, value in list(vars(cell).items()):
                if type(value) is float and not key.startswith("_"):
                    setattr(cell, key, constant(value))
    ops.interpolate, ops.avg_pool2d, ops.relu6 = interpolate, avg_pool2d, relu6  # where models look them up
    return model


def interpolate(
    x: Tensor,
    size: Sequence[int] | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """Return ops.interpolate of the arguments; bilinear and to a given size in fp64 with weights in fp64."""
    if x.dtype != mstype.float64 or mode != "bilinear" or size is None:
        return interpolate_in_fp32(x, size, scale_factor, mode, align_corners, recompute_scale_factor)
    rows = _bilinear_matrix(x.shape[2], size[0], bool(align_corners))
    columns = _bilinear_matrix(x.shape[3], size[1], bool(align_corners))
    return ops.matmul(ops.matmul(rows, x), columns.T)


def avg_pool2d(
    x: Tensor,
    kernel_size: int = 1,
    stride: int = 1,
    padding: int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int = 0,
) -> Tensor:
    """Return ops.avg_pool2d of the arguments; square windows without padding in fp64 with weights in fp64."""
    is_plain = padding == 0 and divisor_override == 0 and not (ceil_mode and count_include_pad)
    if x.dtype != mstype.float64 or not is_plain:
        return avg_pool2d_in_fp32(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    rows = _average_matrix(x.shape[2], kernel_size, stride, ceil_mode)
    columns = _average_matrix(x.shape[3], kernel_size, stride, ceil_mode)
    return ops.matmul(ops.matmul(rows, x), columns.T)


def relu6(x: Tensor) -> Tensor:
    """Return ops.relu6 of x; in fp64, too."""
    return ops.minimum(ops.relu(x), constant(6.0)) if x.dtype == mstype.float64 else relu6_in_fp32(x)


@ops.constexpr
def _bilinear_matrix(inputs: int, outputs: int, align_corners: bool) -> Tensor:
    return Tensor(bilinear_matrix(inputs, outputs, align_corners))


@ops.constexpr
def _average_matrix(inputs: int, kernel: int, stride: int, ceil_mode: bool) -> Tensor:
    return Tensor(average_matrix(inputs, kernel, stride, ceil_mode))


def pad(x: Tensor, padding: tuple[int, int, int, int], value: float) -> Tensor:
    """Pad (N, C, H, W) by a value: top, bottom, left and right."""
    top, bottom, left, right = padding
    for axis, before, after in ((2, top, bottom), (3, left, right)):
        if before:  # MindSpore rejects empty parts
            x = ops.cat((ops.full(x.shape[:axis] + (before,) + x.shape[axis + 1 :], value, dtype=x.dtype), x), axis)
        if after:
            x = ops.cat((x, ops.full(x.shape[:axis] + (after,) + x.shape[axis + 1 :], value, dtype=x.dtype)), axis)
    return x


def same_paddings(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right padding so that (height, width) is divided by the stride and rounded up."""
    paddings: Any = ()
    for axis in (0, 1):
        outputs = -(-size[axis] // stride[axis])
        window = dilation[axis] * (kernel[axis] - 1) + 1
        total = max((outputs - 1) * stride[axis] + window - size[axis], 0)
        paddings += (total // 2, total - total // 2)
    return paddings


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _is_pointwise(cell: nn.Conv3d) -> bool:
    return cell.kernel_size == cell.stride == (1, 1, 1) and cell.group == 1 and not np.any(cell.padding)
