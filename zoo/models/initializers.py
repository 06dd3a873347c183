"""Initial weights: a pure function of (seed, name, shape), the same in every framework and on every rank."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROWS = 4096  # rows per independently seeded block, so that a rank can draw its own rows of a sharded matrix alone


@dataclass(frozen=True)
class Initializer:
    """zeros, ones, constant (= scale), normal (scale = standard deviation) or uniform on [-scale, scale]."""

    kind: str
    scale: float = 0.0


def constant(value: float) -> Initializer:
    return Initializer("constant", value)


def normal(std: float) -> Initializer:
    return Initializer("normal", std)


def uniform(bound: float) -> Initializer:
    return Initializer("uniform", bound)


def kaiming_normal(shape: Sequence[int]) -> Initializer:
    """He et al. (arXiv:1502.01852) for a ReLU, by fan-out of a (out, in, *kernel) convolution."""
    return Initializer("normal", math.sqrt(2.0 / (shape[0] * math.prod(shape[2:]))))


def initialize(
    initializer: Initializer, seed: int, name: str, shape: Sequence[int], rows: tuple[int, int] | None = None
) -> np.ndarray:
    """The tensor `name` (or only its rows [first, last)) as float32."""
    first, last = rows or (0, shape[0] if shape else 1)
    fixed = {"zeros": 0.0, "ones": 1.0, "constant": initializer.scale}
    if initializer.kind in fixed:
        return np.full((last - first, *shape[1:]) if shape else (), fixed[initializer.kind], np.float32)
    drawn = np.empty((last - first, *shape[1:]), np.float32)
    for block in range(first // ROWS, -(-last // ROWS)):
        low, high = block * ROWS, min((block + 1) * ROWS, shape[0])
        rng = np.random.default_rng((seed, zlib.crc32(b"init"), zlib.crc32(name.encode()), block))
        size = (high - low, *shape[1:])
        if initializer.kind == "normal":
            values = rng.standard_normal(size, dtype=np.float32) * np.float32(initializer.scale)
        else:
            values = (rng.random(size, dtype=np.float32) * 2 - 1) * np.float32(initializer.scale)
        start = max(low, first)
        drawn[start - first : high - first] = values[start - low : last - low]
    return drawn
