"""Collectives of PyTorch: gradients, running statistics and embeddings over all ranks.

The number of ranks is the caller's, not the process group's: with one rank nothing is exchanged.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def data_parallel(model: nn.Module, fp16_allreduce: bool) -> DistributedDataParallel:
    """Return the model in DistributedDataParallel; fp16_allreduce: gradients are all-reduced in fp16."""
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    # Running statistics are each rank's own. The attribute exists in PyTorch 2.11 and 2.13; the arguments differ.
    ddp.broadcast_buffers = False
    if fp16_allreduce:
        ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def all_reduce(x: torch.Tensor, world_size: int, op=dist.ReduceOp.SUM) -> torch.Tensor:
    """Return x after reducing it over ranks in place."""
    if world_size > 1:
        dist.all_reduce(x, op)
    return x


def all_gather(x: torch.Tensor, world_size: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (world size * n, ...)."""
    if world_size == 1:
        return x
    shards = [torch.empty_like(x) for _ in range(world_size)]
    dist.all_gather(shards, x.contiguous(), group)
    return torch.cat(shards)


@torch.no_grad()
def all_reduce_mean(tensors: list[torch.Tensor], world_size: int) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= world_size
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(mean.view_as(tensor))
