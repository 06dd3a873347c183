"""Initial weights: a pure function of (seed, tensor name, shape), equal in every framework and on every rank."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoo.data.errors import UserError

ROWS_PER_BLOCK = 4096  # each block of rows has its own seed, so that a rank can draw its rows of a sharded matrix alone


@dataclass(frozen=True)
class Initializer:
    """Distribution that the initial values of a tensor are drawn from.

    Attributes:
        distribution: zeros, ones, constant, normal (mean 0) or uniform (on [-scale, scale]).
        scale: the value of a constant, the standard deviation of normal, the bound of uniform.
    """

    distribution: str
    scale: float = 0.0


def constant(value: float) -> Initializer:
    return Initializer("constant", value)


def zeros(name: str) -> Initializer:
    """Return zeros for a bias or a running mean."""
    kind = name.rpartition(".")[2]
    if "bias" in kind or kind == "running_mean":
        return Initializer("zeros")
    raise UserError(
        f"{name}: `initializer` in the model's spec.py has no rule for this tensor, and zeros, from which it may never "
        "learn, are for biases; add a rule"
    )


def normal(std: float) -> Initializer:
    """Return a normal distribution with mean 0 and standard deviation `std`."""
    return Initializer("normal", std)


def uniform(bound: float) -> Initializer:
    return Initializer("uniform", bound)


def kaiming_normal(shape: Sequence[int]) -> Initializer:
    """Return He initialization for a convolution followed by ReLU: N(0, 2 / fan-out).

    As torch.nn.init.kaiming_normal_(mode="fan_out", nonlinearity="relu"), which torchvision's ResNet uses; see He et
    al., "Delving Deep into Rectifiers" (arXiv:1502.01852). The fan-out is the number of output channels times the
    kernel size; groups are not taken into account.
    """
    fan_out = shape[0] * math.prod(shape[2:])
    return Initializer("normal", math.sqrt(2.0 / fan_out))


def initialize(
    initializer: Initializer, seed: int, name: str, shape: Sequence[int], rows: tuple[int, int] | None = None
) -> np.ndarray:
    """Draw the initial values of a tensor.

    Args:
        name: canonical name of the tensor; it selects the random stream.
        shape: shape of the whole tensor.
        rows: draw only these rows, [first, last). Ranks that draw disjoint rows get rows of the same tensor.

    Returns:
        float32 of `shape`, or (last - first, *shape[1:]).
    """
    first, last = rows or (0, shape[0] if shape else 1)
    fill_values = {"zeros": 0.0, "ones": 1.0, "constant": initializer.scale}
    if initializer.distribution in fill_values:
        return np.full((last - first, *shape[1:]) if shape else (), fill_values[initializer.distribution], np.float32)
    values = np.empty((last - first, *shape[1:]), np.float32)
    for block in range(first // ROWS_PER_BLOCK, -(-last // ROWS_PER_BLOCK)):
        block_first, block_last = block * ROWS_PER_BLOCK, min((block + 1) * ROWS_PER_BLOCK, shape[0])
        rng = np.random.default_rng((seed, zlib.crc32(b"init"), zlib.crc32(name.encode()), block))
        block_shape = (block_last - block_first, *shape[1:])
        if initializer.distribution == "normal":
            block_values = rng.standard_normal(block_shape, dtype=np.float32) * np.float32(initializer.scale)
        else:
            block_values = (rng.random(block_shape, dtype=np.float32) * 2 - 1) * np.float32(initializer.scale)
        start, stop = max(block_first, first), min(block_last, last)
        values[start - first : stop - first] = block_values[start - block_first : stop - block_first]
    return values
