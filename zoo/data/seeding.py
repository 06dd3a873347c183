"""Seeding of many random generators at once, with the same states as np.random.default_rng.

default_rng mixes the words of its seed in NumPy's SeedSequence, which takes 20 microseconds, a fifth of reading a face.
Here the same arithmetic runs over an array of seeds. NumPy guarantees the results of SeedSequence for all versions
(NEP 19), and the tests compare both.
"""

from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

WORD_BITS = 32
MAX_WORD = (1 << WORD_BITS) - 1
MIN_AT_ONCE = 4  # fewer seeds take longer at once than one by one
POOL_WORDS = 4  # words of a seed that are hashed at once; a seed of fewer is padded with zeros
STATE_WORDS = 8  # of 32 bits, in the state of PCG64
# The constants of SeedSequence, which are those of O'Neill's randutils.
INIT_A, MULTIPLIER_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULTIPLIER_B = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
SHIFT = np.uint32(16)


def generators(prefix: tuple[int, int], numbers: Sequence[int]) -> list[np.random.Generator]:
    """Return np.random.default_rng((*prefix, number)) for each number.

    Args:
        prefix: two integers from 0; larger ones than 32 bits are slow.
        numbers: integers from 0; larger ones than 64 bits are slow.
    """
    if len(numbers) < MIN_AT_ONCE or max(prefix) > MAX_WORD or max(numbers) >= 1 << 2 * WORD_BITS:
        return [np.random.default_rng((*prefix, number)) for number in numbers]
    low_and_high = np.array(numbers, np.uint64)[:, None].view(np.uint32)
    words = np.empty((POOL_WORDS, len(numbers)), np.uint32)
    words[:2], words[2:] = np.array(prefix, np.uint32)[:, None], low_and_high.T
    seeds: list[Any] = [_State(state) for state in _states(words)]
    return [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]


class _State(ISeedSequence):
    """A seed sequence whose result has been calculated."""

    __slots__ = ("state",)

    def __init__(self, state: np.ndarray):
        self.state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> np.ndarray:
        """Return the state of PCG64, which asks for nothing else."""
        return self.state


def _constants(first: int, multiplier: int, count: int) -> np.ndarray:
    """Return the constants of successive hashes, uint32 (count + 1, 1): hash i uses the i-th and the one after it."""
    values = accumulate(repeat(multiplier, count), lambda value, factor: value * factor & MAX_WORD, initial=first)
    return np.array(list(values), np.uint32)[:, None]


POOL_CONSTANTS = _constants(INIT_A, MULTIPLIER_A, POOL_WORDS + POOL_WORDS * (POOL_WORDS - 1))
STATE_CONSTANTS = _constants(INIT_B, MULTIPLIER_B, STATE_WORDS)


def _states(words: np.ndarray) -> np.ndarray:
    """Return SeedSequence(words).generate_state(4, uint64) of seeds, uint32 (POOL_WORDS, n): uint64 (n, 4)."""
    pool = _hash(words, POOL_CONSTANTS[: POOL_WORDS + 1])
    for source in range(POOL_WORDS):
        others = [word for word in range(POOL_WORDS) if word != source]
        first = POOL_WORDS + source * len(others)
        hashed = _hash(pool[source], POOL_CONSTANTS[first : first + len(others) + 1])
        mixed = MIX_LEFT * pool[others] - MIX_RIGHT * hashed
        pool[others] = mixed ^ mixed >> SHIFT
    state = _hash(np.concatenate([pool, pool]), STATE_CONSTANTS)
    return np.ascontiguousarray(state.T).view(np.uint64)


def _hash(words: np.ndarray, constants: np.ndarray) -> np.ndarray:
    """Hash words, uint32 (m, n) or (n,), with m + 1 constants."""
    hashed = (words ^ constants[:-1]) * constants[1:]
    return hashed ^ hashed >> SHIFT
