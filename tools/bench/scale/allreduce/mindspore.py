"""All-reduce in MindSpore."""

from collections.abc import Callable

import numpy as np
from mindspore import Tensor

from zoo.trainer.mindspore import parallel


def all_reducer(count: int, size: int, _device: str) -> Callable[[], None]:
    """Return a function that all-reduces `count` fp32 numbers and waits for the result.

    Args:
        count: length of the tensor.
        size: number of ranks.
        _device: the tensor is on the device that the world has set.
    """
    x = Tensor(np.zeros(count, np.float32))

    def reduce() -> None:
        parallel.all_reduce(x, size).asnumpy()

    return reduce
