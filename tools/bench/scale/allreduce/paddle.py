"""All-reduce in Paddle."""

from collections.abc import Callable

import paddle

from zoo.trainer.paddle import parallel


def all_reducer(count: int, _size: int, device: str) -> Callable[[], None]:
    """Return a function that all-reduces `count` fp32 numbers and waits for the result.

    Args:
        count: length of the tensor.
        _size: number of ranks, which the process group knows.
        device: as the world describes it: cpu (2 threads), cuda:0 (Tesla V100).
    """
    is_cuda = device.startswith("cuda")
    x = paddle.zeros([count])

    def reduce() -> None:
        parallel.all_reduce(x)
        if is_cuda:
            paddle.device.synchronize()

    return reduce
