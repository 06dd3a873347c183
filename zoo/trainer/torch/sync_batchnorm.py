"""Batch normalisation over all ranks; on CPUs, where PyTorch has none, our own.

There sums over samples are taken in float64 and all else is elementwise, so that the result does not depend on how the
samples are spread over ranks. As in PyTorch's own, the input is all that is kept for the backward pass.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from zoo.trainer.blocks import blocks
from zoo.trainer.torch.parallel import total

CHUNK = 1 << 18  # elements in fp32 or float64 at once: copies of a whole activation would be the peak of an update


class SyncBatchNormFunction(torch.autograd.Function):
    """(x, weight, bias, eps) -> (normalised x, mean, variance (biased), elements per channel over all ranks).

    x: (N, C, ...) in any float type; computed in float32. Ioffe and Szegedy, arXiv:1502.03167.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float):
        ctx.count = x.numel() // x.shape[1] * (dist.get_world_size() if dist.is_initialized() else 1)  # all as many
        wide = total(_sums(lambda part: part, x)) / ctx.count
        mean = wide.float()
        variance = total(_sums(lambda part: (part - _along(mean, x)).square_(), x)) / ctx.count
        variance = (variance - (wide - mean).square()).clamp(min=0)
        ctx.scale = torch.rsqrt(variance + eps).float()
        ctx.save_for_backward(x, weight, mean)
        ctx.mark_non_differentiable(mean, variance)
        factor, y = _along(weight * ctx.scale, x), torch.empty_like(x)
        for block in blocks(x.shape, CHUNK):
            y[block] = (x[block].float() - _along(mean, x)).mul_(factor).add_(_along(bias, x))
        return y, mean, variance, ctx.count

    @staticmethod
    def backward(ctx, gradient: torch.Tensor, *_):
        x, weight, mean = ctx.saved_tensors
        scale = _along(ctx.scale, x)

        def normalised(part: torch.Tensor) -> torch.Tensor:
            return (part - _along(mean, x)).mul_(scale)

        by_bias = _sums(lambda part: part, gradient)
        by_weight = _sums(lambda slope, part: normalised(part).mul_(slope), gradient, x)
        shift, tilt = (_along((total(each) / ctx.count).float(), x) for each in (by_bias, by_weight))
        factor, slope = _along(weight * ctx.scale, x), torch.empty_like(x)
        for block in blocks(x.shape, CHUNK):
            slope[block] = normalised(x[block].float()).mul_(-tilt).add_(gradient[block]).sub_(shift).mul_(factor)
        return slope, by_weight.float(), by_bias.float(), None


def _sums(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """function(tensors in float32), summed over all axes but the channels: float64 (C,)."""
    axes = [axis for axis in range(tensors[0].dim()) if axis != 1]
    return sum(
        function(*(tensor[block].float() for tensor in tensors)).double().sum(axes)
        for block in blocks(tensors[0].shape, CHUNK)
    )


def _along(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(C,) beside (N, C, ...)."""
    return values.view([1, -1] + [1] * (x.dim() - 2))


class _SyncBatchNorm:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        y, mean, variance, count = SyncBatchNormFunction.apply(x, self.weight, self.bias, self.eps)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_((variance * (count / max(count - 1, 1))).float(), self.momentum)
            self.num_batches_tracked += 1
        return y


class SyncBatchNorm2d(_SyncBatchNorm, nn.BatchNorm2d):
    pass


class SyncBatchNorm3d(_SyncBatchNorm, nn.BatchNorm3d):
    pass


KINDS = {nn.BatchNorm2d: SyncBatchNorm2d, nn.BatchNorm3d: SyncBatchNorm3d}


def convert_sync_batchnorm(model: nn.Module, device: torch.device) -> nn.Module:
    """The model with batch normalisations that take their statistics over all ranks."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        module.__class__ = KINDS.get(type(module), type(module))
    return model
