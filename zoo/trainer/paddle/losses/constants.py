"""Numbers of a loss on the device."""

from functools import cache

import paddle


@cache
def constant(values: tuple[float, ...], dtype: paddle.dtype) -> paddle.Tensor:
    """Return values as a tensor; copied to the device once, because a copy waits for it."""
    return paddle.to_tensor(values, dtype=dtype)
