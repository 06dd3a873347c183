"""Several processes in PyTorch: gradients, batch statistics and running statistics over all ranks."""
from typing import List

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def wrap(net: nn.Module, compress: bool) -> DistributedDataParallel:
    """The net whose gradients become the mean over ranks, in buckets that travel while the backward pass goes on.

    compress: they travel as fp16.
    """
    ddp = DistributedDataParallel(net, forward_sync_buffers=False, gradient_as_bucket_view=True)
    if compress:
        ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def synchronised(net: nn.Module, device: torch.device) -> nn.Module:
    """The net with batch normalisations that take their statistics over all ranks."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(net)
    for module in net.modules():
        if type(module) in SYNCHRONISED:
            module.__class__ = SYNCHRONISED[type(module)]
    return net


@torch.no_grad()
def average(tensors: List[torch.Tensor]) -> None:
    """Give every rank the mean over ranks, in place."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view_as(tensor))


class _Sum(torch.autograd.Function):
    """The sum over ranks; so is its gradient."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return total(x)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return total(gradient)


def total(x: torch.Tensor) -> torch.Tensor:
    """The sum over ranks."""
    found = x.clone()
    if dist.is_initialized():
        dist.all_reduce(found)
    return found


class _Synchronised:
    """What nn.SyncBatchNorm does, which PyTorch has for GPUs alone.

    In float64, so that the result does not depend on how the samples are spread over ranks.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        size = dist.get_world_size() if dist.is_initialized() else 1
        wide = x.double()
        count = wide.numel() // wide.shape[1] * size  # every rank has as many
        mean = _Sum.apply(wide.sum(axes)) / count
        shape = [1, -1] + [1] * (x.dim() - 2)
        centred = wide - mean.view(shape)
        variance = _Sum.apply((centred * centred).sum(axes)) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean.float(), self.momentum)
            self.running_var.lerp_((variance * (count / max(count - 1, 1))).float(), self.momentum)
            self.num_batches_tracked += 1
        factor = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * factor.view(shape) + self.bias.view(shape)).to(x.dtype)


class Synchronised2d(_Synchronised, nn.BatchNorm2d):
    pass


class Synchronised3d(_Synchronised, nn.BatchNorm3d):
    pass


SYNCHRONISED = {nn.BatchNorm2d: Synchronised2d, nn.BatchNorm3d: Synchronised3d}
