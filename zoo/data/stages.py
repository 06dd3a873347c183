"""Seconds that reading a sample takes, by stage.

The code of a format or a data set marks its stages with `stage`, as a context manager or a decorator. The marks cost
less than a microsecond and do nothing unless the thread is within `measure`. Stages may be nested: time belongs to the
innermost one, so the sum over the stages is the whole time.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator, contextmanager

READ, DECODE, TRANSFORM, COLLATE = "read", "decode", "transform", "collate"
STAGES = (READ, DECODE, TRANSFORM, COLLATE)  # all of them, in the order in which a sample passes them

Seconds = dict[str, float]  # by stage


class _Stopwatch:
    """The stages that a thread is in, and the seconds that it has spent in each stage."""

    def __init__(self, clock: Callable[[], float]):
        self.seconds: Seconds = dict.fromkeys(STAGES, 0.0)
        self._clock, self._stack, self._since = clock, [TRANSFORM], clock()

    def enter(self, name: str) -> None:
        self._add_to(self._stack[-1])
        self._stack.append(name)

    def leave(self) -> None:
        self._add_to(self._stack.pop())

    def _add_to(self, name: str) -> None:
        now = self._clock()
        self.seconds[name] += now - self._since
        self._since = now


class _Thread(threading.local):
    stopwatch: _Stopwatch | None = None


_thread = _Thread()


class stage(ContextDecorator):
    """Mark a block or a function as a stage, one of STAGES."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        if _thread.stopwatch:
            _thread.stopwatch.enter(self.name)

    def __exit__(self, *_: object) -> None:
        if _thread.stopwatch:
            _thread.stopwatch.leave()


@contextmanager
def measure(clock: Callable[[], float] = time.perf_counter) -> Iterator[Seconds]:
    """Measure the stages of this thread within the block; what no stage covers counts as transform.

    Args:
        clock: time.perf_counter, or time.process_time for CPU time over all threads of the process.

    Returns:
        The seconds by stage, complete when the block ends.
    """
    stopwatch = _thread.stopwatch = _Stopwatch(clock)
    try:
        yield stopwatch.seconds
    finally:
        stopwatch.leave()
        _thread.stopwatch = None


def total(parts: Iterable[Seconds]) -> Seconds:
    added: Seconds = dict.fromkeys(STAGES, 0.0)
    for part in parts:
        for name, seconds in part.items():
            added[name] += seconds
    return added
