"""All-reduces in each framework, as its trainer runs them, to be timed."""

from collections.abc import Callable

import numpy as np


def with_torch(count: int, size: int, device: str) -> Callable[[], None]:
    """Return a function that all-reduces `count` fp32 numbers and waits for the result."""
    import torch

    from zoo.trainer.torch import parallel

    x = torch.zeros(count, device=device.partition(" ")[0])

    def reduce() -> None:
        parallel.all_reduce(x, size)
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    return reduce


def with_paddle(count: int, size: int, device: str) -> Callable[[], None]:
    import paddle

    from zoo.trainer.paddle import parallel

    x = paddle.zeros([count])

    def reduce() -> None:
        parallel.all_reduce(x)
        if device.startswith("cuda"):
            paddle.device.synchronize()

    return reduce


def with_mindspore(count: int, size: int, device: str) -> Callable[[], None]:
    import mindspore

    from zoo.trainer.mindspore import parallel

    x = mindspore.Tensor(np.zeros(count, np.float32))

    def reduce() -> None:
        parallel.all_reduce(x, size).asnumpy()

    return reduce


REDUCERS = {"torch": with_torch, "paddle": with_paddle, "mindspore": with_mindspore}
