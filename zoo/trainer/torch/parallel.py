"""Collectives of PyTorch: gradients, running statistics and embeddings over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def data_parallel(model: nn.Module, fp16_allreduce: bool) -> DistributedDataParallel:
    """Return the model in DistributedDataParallel; fp16_allreduce: gradients are all-reduced in fp16."""
    ddp = DistributedDataParallel(model, forward_sync_buffers=False, gradient_as_bucket_view=True)
    if fp16_allreduce:
        ddp.register_comm_hook(None, fp16_compress_hook)
    return ddp


def all_reduce(x: torch.Tensor, op=dist.ReduceOp.SUM) -> torch.Tensor:
    """Return x after reducing it over ranks in place."""
    if dist.is_initialized():
        dist.all_reduce(x, op)
    return x


def all_gather(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (world size * n, ...)."""
    if not dist.is_initialized():
        return x
    shards = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, x.contiguous(), group)
    return torch.cat(shards)


@torch.no_grad()
def all_reduce_mean(tensors: list[torch.Tensor]) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(mean.view_as(tensor))
