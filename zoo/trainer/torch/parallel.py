"""Collectives of PyTorch, and copies between host and GPU that do not wait for the operations the GPU has been given.

The number of ranks is the caller's, not the process group's: with one rank nothing is exchanged.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from zoo.data.loaders.packed import DeviceImages

# PyTorch 2.11 knows the older name alone, of which 2.13 warns.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


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
    gathered = x.new_empty((world_size * x.shape[0], *x.shape[1:]))
    _all_gather(gathered, x.contiguous(), group)
    return gathered


@torch.no_grad()
def all_reduce_mean(tensors: list[torch.Tensor], world_size: int) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= world_size
    for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(mean.view_as(tensor))


def upload(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Return a tensor of the host on a device; None or a CPU returns the tensor itself."""
    if device is None or device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class HostGather:
    """Concatenation of all ranks' tensors on the host, without a wait for the operations that the GPU has been given.

    The copy has a stream of its own, and ranks exchange it by Gloo. Not run on a GPU yet.

    Args:
        device: that of the tensors. All ranks must create the object.
    """

    def __init__(self, device: torch.device, world_size: int):
        self.world_size = world_size
        is_cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if is_cuda else None
        self.group = dist.new_group(backend="gloo") if is_cuda and world_size > 1 else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Gather along the first axis.

        Args:
            x: on a GPU it must be complete already, as batches of Trainer.to_device are.
        """
        if self.stream is not None:
            with torch.cuda.stream(self.stream):
                x = x.cpu()
        return all_gather(x, self.world_size, self.group)


def assemble(images: DeviceImages, device: torch.device | None = None) -> torch.Tensor:
    """Return images in the order of their rows: uint8 (*images.order.shape, H, W, 3), a copy.

    A copy on the device, because PyTorch's allocator knows which streams use its own memory and nothing of DALI's. On a
    GPU, the call is for the stream that is current, and `images` must be kept until that has done the work.

    Args:
        device: the CUDA device on which DALI decoded; None for a CPU.
    """
    parts = [torch.from_dlpack(part) for part in images.decoded]
    order = torch.from_numpy(images.order.ravel())
    if len(images.rest):
        parts.append(upload(torch.from_numpy(images.rest), device))
    rows = torch.cat(parts) if len(parts) > 1 else parts[0]
    return rows.index_select(0, upload(order, device)).reshape(*images.order.shape, *rows.shape[1:])
