"""Several processes in PyTorch: gradients and running statistics over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def wrap(model: nn.Module, fp16_allreduce: bool) -> DistributedDataParallel:
    """The model whose gradients become the mean over ranks, in buckets that travel while the backward pass goes on.

    fp16_allreduce: they travel as fp16.
    """
    ddp = DistributedDataParallel(model, forward_sync_buffers=False, gradient_as_bucket_view=True)
    if fp16_allreduce:
        ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def total(x: torch.Tensor) -> torch.Tensor:
    """The sum over ranks."""
    found = x.clone()
    if dist.is_initialized():
        dist.all_reduce(found)
    return found


@torch.no_grad()
def average(tensors: list[torch.Tensor]) -> None:
    """Give every rank the mean over ranks, in place."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view_as(tensor))
