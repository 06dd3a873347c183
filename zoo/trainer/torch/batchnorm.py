"""Batch normalization with statistics over all ranks, whose batches have the same size.

On a GPU it runs the kernels of PyTorch's SyncBatchNorm, which looks for empty batches and so waits for the device three
times per layer. On a CPU, where PyTorch has none, it sums over samples in float64, and all other operations are
elementwise, so that the result does not depend on how samples are distributed over ranks. Both save only the input for
the backward pass.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zoo.trainer.torch import ops
from zoo.trainer.torch.parallel import all_gather, all_reduce
from zoo.trainer.update import blocks

BLOCK_SIZE = 1 << 18  # elements per block: fp32 and float64 copies of a whole activation would double the peak memory


class SyncBatchNormFunction(torch.autograd.Function):
    """(x, weight, bias, eps, world_size) -> (y, mean, biased variance, elements per channel over all ranks).

    x: (N, C, ...) in any floating-point type, computed in fp32, or fp64 if x is. Ioffe and Szegedy, arXiv:1502.03167.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, world_size: int):
        ctx.world_size = world_size
        ctx.count = x.numel() // x.shape[1] * world_size  # every rank has the same batch size
        mean64 = all_reduce(_channel_sums(lambda part: part, x), world_size) / ctx.count
        mean = mean64.to(_wide_type(x))
        squares = _channel_sums(lambda part: (part - _broadcast(mean, x)).square_(), x)
        variance = all_reduce(squares, world_size) / ctx.count
        variance = (variance - (mean64 - mean).square()).clamp(min=0)
        ctx.scale = torch.rsqrt(variance + eps).to(mean.dtype)
        ctx.save_for_backward(x, weight, mean)
        ctx.mark_non_differentiable(mean, variance)
        factor, y = _broadcast(weight * ctx.scale, x), torch.empty_like(x)
        for block in blocks(x.shape, BLOCK_SIZE):
            y[block] = (x[block].to(mean.dtype) - _broadcast(mean, x)).mul_(factor).add_(_broadcast(bias, x))
        return y, mean, variance, ctx.count

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor, *_: Any):
        x, weight, mean = ctx.saved_tensors
        scale = _broadcast(ctx.scale, x)

        def normalized(part: torch.Tensor) -> torch.Tensor:
            return (part - _broadcast(mean, x)).mul_(scale)

        grad_bias = _channel_sums(lambda part: part, grad_y)
        grad_weight = _channel_sums(lambda grad, part: normalized(part).mul_(grad), grad_y, x)
        mean_grad, mean_product = (
            _broadcast((all_reduce(sums.clone(), ctx.world_size) / ctx.count).to(mean.dtype), x)
            for sums in (grad_bias, grad_weight)
        )
        factor, grad_x = _broadcast(weight * ctx.scale, x), torch.empty_like(x)
        for block in blocks(x.shape, BLOCK_SIZE):
            grad = normalized(x[block].to(mean.dtype)).mul_(-mean_product).add_(grad_y[block])
            grad_x[block] = grad.sub_(mean_grad).mul_(factor)
        return grad_x, grad_weight.to(weight.dtype), grad_bias.to(weight.dtype), None, None


class GpuFunction(torch.autograd.Function):
    """(x, weight, bias, running mean, running variance, eps, momentum, world_size) -> y.

    x: (N, C, ...) in any floating-point type; the statistics are in fp32, or fp64 if x is. The running ones are moved.
    """

    @staticmethod
    def forward(ctx: Any, x, weight, bias, running_mean, running_var, eps: float, momentum: float, world_size: int):
        x = _dense(x)
        own = torch.stack(torch.batch_norm_stats(x, eps))[None]
        means, inverse_stds = all_gather(own, world_size).unbind(1)  # (ranks, C) each
        counts = (x.numel() // x.shape[1],) * world_size
        mean, inverse_std = torch.batch_norm_gather_stats_with_counts(
            x, means, inverse_stds, running_mean, running_var, momentum, eps, ops.vector(counts, means)
        )
        ctx.world_size = world_size
        ctx.save_for_backward(x, weight, mean, inverse_std, ops.integers(counts, x.device))
        return torch.batch_norm_elemt(x, weight, bias, mean, inverse_std, eps)

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor):
        x, weight, mean, inverse_std, counts = ctx.saved_tensors
        grad_y = _dense(grad_y)
        *sums, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
            grad_y, x, mean, inverse_std, weight, True, True, True
        )
        sum_grad, sum_product = all_reduce(torch.stack(sums), ctx.world_size)
        grad_x = torch.batch_norm_backward_elemt(grad_y, x, mean, inverse_std, weight, sum_grad, sum_product, counts)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return x in a memory format that the kernels know."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return x if x.is_contiguous(memory_format=last) else x.contiguous()


def _channel_sums(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """Return function(tensors in fp32 or fp64), summed in float64 over all axes but the channels: (C,)."""
    axes = [axis for axis in range(tensors[0].dim()) if axis != 1]
    zeros = torch.zeros(tensors[0].shape[1], dtype=torch.float64, device=tensors[0].device)
    return sum(
        (
            function(*(tensor[block].to(_wide_type(tensor)) for tensor in tensors)).double().sum(axes)
            for block in blocks(tensors[0].shape, BLOCK_SIZE)
        ),
        zeros,
    )


def _wide_type(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _broadcast(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Reshape values (C,) so that they broadcast over x (N, C, ...)."""
    return values.view([1, -1] + [1] * (x.dim() - 2))


class _SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    running_mean: torch.Tensor
    running_var: torch.Tensor
    momentum: float
    world_size: int

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        if x.is_cuda:
            statistics = self.running_mean, self.running_var
            return GpuFunction.apply(x, self.weight, self.bias, *statistics, self.eps, self.momentum, self.world_size)
        y, mean, variance, count = SyncBatchNormFunction.apply(x, self.weight, self.bias, self.eps, self.world_size)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_((variance * (count / max(count - 1, 1))).to(mean.dtype), self.momentum)
        return y


class SyncBatchNorm2d(_SyncBatchNorm, nn.BatchNorm2d):
    pass


class SyncBatchNorm3d(_SyncBatchNorm, nn.BatchNorm3d):
    pass


REPLACEMENTS: dict[type, type] = {nn.BatchNorm2d: SyncBatchNorm2d, nn.BatchNorm3d: SyncBatchNorm3d}


def convert_sync_batchnorm(model: nn.Module, world_size: int) -> None:
    """Let a model's batch normalizations use statistics over all ranks."""
    for module in model.modules():
        if type(module) in REPLACEMENTS:
            module.__class__ = REPLACEMENTS[type(module)]
            module.world_size = world_size  # type: ignore[assignment]
