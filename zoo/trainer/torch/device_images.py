"""Images that DALI has decoded, as a tensor in PyTorch's own memory."""

import torch

from zoo.data.loaders.dali_device import DeviceImages
from zoo.trainer.torch.host import upload


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
