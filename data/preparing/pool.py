"""Work on many chunks in several processes, which stop when they are told to and when their parent is gone."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from zoo.data.errors import UserError
from zoo.data.preparing import plan as plans
from zoo.data.preparing import work
from zoo.data.preparing.work import Stopped, Task

POLL_INTERVAL = 0.2  # seconds

_counters: "SharedCounters | None" = None  # of this process, set by _init


class SharedCounters:
    """Samples done and unreadable, those that are worked on, and whether to stop, in memory that processes share."""

    def __init__(self, context: Any, chunks: int):
        self._counts, self._stop = context.Array("q", 2), context.Event()
        self._current = context.RawArray("q", [-1] * chunks)

    def begin(self, chunk: int, position: int) -> None:
        self._current[chunk] = position

    def current(self) -> dict[int, int]:
        """Return the positions of the samples that are worked on, by chunk."""
        return {chunk: position for chunk, position in enumerate(self._current) if position >= 0}

    def add(self, done: int, bad: int) -> None:
        with self._counts.get_lock():
            self._counts[0] += done
            self._counts[1] += bad

    def read(self) -> tuple[int, int]:
        """Return the numbers of samples done and unreadable."""
        return self._counts[0], self._counts[1]

    def stop(self) -> None:
        self._stop.set()

    def stopped(self) -> bool:
        return self._stop.is_set()


def run(tasks: Sequence[Task], workers: int, show: Callable[[int, int], None]) -> list[Stopped]:
    """Work on all chunks.

    Args:
        workers: Number of processes.
        show: Called now and then with the numbers of samples done and unreadable in this run.

    Returns:
        The files that chunks stopped at.

    Raises:
        UserError: The result cannot be written, or a process was killed.
        KeyboardInterrupt: After all processes have saved their work.
    """
    context = multiprocessing.get_context("spawn")
    counters = SharedCounters(context, 1 + max(task.chunk.number for task in tasks))
    with ProcessPoolExecutor(workers, context, _init, (counters, os.getpid())) as pool:
        futures: set[Future] = {pool.submit(_work, task) for task in tasks}
        # A pool looks for new processes to watch before a submit starts one: the last one needs another submit.
        pool.submit(os.getpid)
        stopped: list[Stopped] = []
        try:
            while futures:
                done, futures = wait(futures, POLL_INTERVAL, FIRST_COMPLETED)
                show(*counters.read())
                stopped += [result for result in (future.result() for future in done) if result]
        except BrokenProcessPool:
            names = [
                f"\n  {plans.read_items(tasks[0].out, chunk)[position].sample.name}"
                for chunk, position in counters.current().items()
            ]
            raise UserError(
                "a process was killed, perhaps for want of memory; run the same command again, with fewer --workers. "
                "If that does not help, one of these files crashes a decoder; remove it, and leave it out with "
                f"--skip-unreadable:{''.join(names)}"
            ) from None
        finally:  # also after an error: what is done is kept
            counters.stop()
            pool.shutdown(cancel_futures=True)
            show(*counters.read())
    return sorted(stopped)


def _work(task: Task) -> Stopped | None:
    assert _counters
    return work.run(task, _counters)


def _init(counters: SharedCounters, parent: int) -> None:
    """Ignore Ctrl-C, which the parent process handles, and exit when that is gone."""
    global _counters
    _counters = counters
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_INTERVAL)
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
