"""Latency and throughput of several contenders in turns, so that what slows the machine down acts on all alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from zoo.bench.timing.deploy.contenders import Forward

BLOCK = 5  # calls of a turn that count, fewer where they take more than
TURN = 2.0  # seconds
MIN_ROUNDS = 2

Clock = Callable[[], float]


@dataclass
class Calls:
    """Calls of one contender.

    Attributes:
        seconds: of each.
        cpu: seconds of all threads of the process in all of them.
        samples: of one call.
    """

    samples: int
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0

    def percentile(self, percent: float) -> float:
        """Return the time in seconds that so many percent of the calls do not exceed."""
        return float(np.percentile(self.seconds, percent, method="higher"))

    @property
    def cpu_per_sample(self) -> float:
        return self.cpu / (len(self.seconds) * self.samples)

    @property
    def samples_per_s(self) -> float:
        """Samples per second in the median call."""
        return self.samples / float(np.median(self.seconds))


def measure(
    contenders: Mapping[str, Forward],
    pixels: np.ndarray,
    count: int,
    seconds: float,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> dict[str, Calls]:
    """Call every contender on the same pixels.

    A turn begins with a call that does not count, because the caches hold another contender's numbers, and another's
    threads may still wait for work.

    Args:
        contenders: by name.
        pixels: uint8 (N, ..., 3).
        count: calls of each that count, rounded up to whole turns.
        seconds: no round begins later, but for the first MIN_ROUNDS.
        clock: time in seconds.
        cpu_clock: processor time of the process in seconds.

    Returns:
        The calls by contender.
    """
    calls = {name: Calls(len(pixels)) for name in contenders}
    slowest = 0.0
    for forward in contenders.values():
        start = clock()
        forward(pixels)  # allocates
        slowest = max(slowest, clock() - start)
    block = max(1, min(BLOCK, count, int(TURN / max(slowest, 1e-9))))
    end = clock() + seconds
    for number in range(-(-count // block)):
        if number >= MIN_ROUNDS and clock() > end:
            break
        for name in sorted(contenders, reverse=number % 2 == 1):  # none is always first
            _take_turn(contenders[name], pixels, block, calls[name], clock, cpu_clock)
    return calls


def _take_turn(forward: Forward, pixels: np.ndarray, block: int, calls: Calls, clock: Clock, cpu_clock: Clock) -> None:
    forward(pixels)
    cpu = cpu_clock()
    for _ in range(block):
        start = clock()
        forward(pixels)
        calls.seconds.append(clock() - start)
    calls.cpu += cpu_clock() - cpu
