"""Timing of updates on a synthetic batch, by trainers that are thrown away afterwards."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from zoo.data import host
from zoo.data.batch import Batch, DropoutMask, Field
from zoo.trainer.protocol import Trainer

ROUNDS = 5  # updates of each trainer
MAX_SECONDS = 20.0  # of all rounds; none begins later
SLOW = 10.0  # seconds; if a first update takes longer, it is the only one
BUSY = 0.1  # share of the time that this thread waits for a core; with more of it, other programs disturb the timing


class Timing(NamedTuple):
    """Times of updates.

    Attributes:
        seconds: of an update of each trainer.
        busy: whether other programs kept the cores.
    """

    seconds: list[float]
    busy: bool


def measure(
    build: Sequence[Callable[[], Trainer]],
    batch: Batch,
    clock: Callable[[], float] = time.perf_counter,
    core_wait: Callable[[], float] = host.core_wait,
) -> Timing:
    """Time an update of several trainers in turn.

    The learning rate is 0, so the weights stay what they are.

    Args:
        build: builds each trainer, on one micro-batch per update.
        batch: a training batch.
        clock: time in seconds.
        core_wait: seconds that this thread has waited for a core.

    Returns:
        The fastest update of each trainer, in which the machine did little else; the first one, which also chooses
        kernels and allocates, if it is slow.
    """
    start, waited = clock(), core_wait()
    seconds = _time_in_turn([_update(make(), batch) for make in build], clock)
    gc.collect()  # a trainer may refer to itself
    return Timing(seconds, core_wait() - waited > BUSY * (clock() - start))


def synthetic_batch(fields: Sequence[Field], dropout_masks: Sequence[DropoutMask], size: int) -> Batch:
    """Return a batch of random pixels, whose labels are class 0 and whose dropout masks keep everything."""
    rng = np.random.default_rng(0)
    batch = {field.name: np.zeros((size, *field.shape), field.dtype) for field in fields}
    for field in fields:
        if field.mean is not None:
            batch[field.name][:] = rng.integers(0, 256, (size, *field.shape), np.uint8)
    batch.update((mask.name, np.ones((size, *mask.shape), mask.field.dtype)) for mask in dropout_masks)
    batch["valid"] = np.ones(size, np.uint8)
    return batch


def _time_in_turn(updates: Sequence[Callable[[], object]], clock: Callable[[], float]) -> list[float]:
    first = [_time(update, clock) for update in updates]
    seconds: list[list[float]] = [[] for _ in updates]
    end = clock() + MAX_SECONDS
    for number in range(0 if max(first) > SLOW else ROUNDS):
        if number and clock() > end:
            break
        in_turn = list(zip(updates, seconds))
        for update, times in in_turn if number % 2 else reversed(in_turn):  # neither is always first
            times.append(_time(update, clock))
    return [min(times) if times else only for times, only in zip(seconds, first)]


def _update(trainer: Trainer, batch: Batch) -> Callable[[], object]:
    on_device = trainer.to_device(batch)
    return lambda: trainer.read(trainer.step([on_device], 0.0, 0))


def _time(update: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    update()
    return clock() - start
