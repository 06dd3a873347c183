"""When the ranks exchange what may happen to any of them at any step, such as a signal.

An exchange takes rank 0 longer the more ranks there are. In a large world it comes so seldom that it costs the same
share of the time whatever a step takes; rank 0 announces with each exchange after how many steps the next one follows.
"""

import time
from typing import Any

from zoo.distributed.control_group import Group

SMALL_WORLD = 16  # ranks; up to this world size there is an exchange after every step
SECONDS_PER_RANK = 0.01  # between two exchanges of a larger world


class Polling:
    """Periodic exchange of lists between all ranks.

    Args:
        group: process group.
    """

    def __init__(self, group: Group):
        self._group = group
        self._next = 0  # step
        self._previous: tuple[int, float] | None = None  # step and time, monotonic clock in seconds, of an exchange

    def is_due(self, done: int) -> bool:
        """Return whether the ranks exchange after `done` steps; the same on all ranks."""
        return done >= self._next

    def exchange(self, done: int, items: list[Any]) -> list[Any]:
        """Return the items of all ranks, in the order of the ranks; collective."""
        mine = items if self._group.rank else [self._steps_ahead(done), *items]
        ahead, *everywhere = self._group.concatenate(mine)
        self._next = done + ahead
        return everywhere

    def _steps_ahead(self, done: int) -> int:
        """Return after how many steps the next exchange follows, by the time of the steps since the last one."""
        size, now, previous = self._group.size, time.monotonic(), self._previous
        self._previous = done, now
        if size <= SMALL_WORLD or previous is None or done == previous[0]:
            return 1
        step = (now - previous[1]) / (done - previous[0])
        return min(max(int(size * SECONDS_PER_RANK / max(step, 1e-6)), 1), size)
