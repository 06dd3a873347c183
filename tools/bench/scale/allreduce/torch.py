"""All-reduce in PyTorch."""

from collections.abc import Callable

import torch

from zoo.trainer.torch import parallel


def all_reducer(count: int, size: int, device: str) -> Callable[[], None]:
    """Return a function that all-reduces `count` fp32 numbers and waits for the result.

    Args:
        count: length of the tensor.
        size: number of ranks.
        device: as the world describes it: cpu (2 threads), cuda:0 (NVIDIA H100).
    """
    is_cuda = device.startswith("cuda")
    x = torch.zeros(count, device=device.partition(" ")[0])

    def reduce() -> None:
        parallel.all_reduce(x, size)
        if is_cuda:
            torch.cuda.synchronize()

    return reduce
