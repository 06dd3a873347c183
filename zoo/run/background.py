"""Iterator whose items are computed by a thread, ahead of the consumer."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

JOIN_TIMEOUT = 30.0  # seconds that `close` waits for the item in progress
POLL_INTERVAL = 0.2  # seconds

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundMap(Iterator[Result], Generic[Item, Result]):
    """function(item) for every item of an iterator, in order, computed by one thread.

    An error of the iterator or the function is raised where its result would be returned. A daemon thread does not keep
    the process alive; `close` ends it in order.

    Attributes:
        busy: seconds that the thread has spent in the function so far.
        error: what has ended the thread, also before it is raised; None as long as it goes on, and at the proper end.
    """

    def __init__(
        self, function: Callable[[Item], Result], items: Iterator[Item], close_items: Callable[[], None], ahead: int
    ):
        """Start the thread.

        Args:
            function: called by the thread, as are the other two.
            items: the iterator.
            close_items: called at the end, whatever the cause.
            ahead: results that may be ready or in progress, beside the one that the consumer has.
        """
        self.busy = 0.0
        self.error: BaseException | None = None
        self._ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._room, self._stop = threading.Semaphore(ahead), threading.Event()
        self._next: tuple[Any, BaseException | None] | None = None
        self._end: BaseException | None = None
        arguments = (function, items, close_items)
        self._thread = threading.Thread(target=self._run, args=arguments, name="prefetch", daemon=True)
        self._thread.start()

    def wait(self, gives_up: Callable[[], bool]) -> bool:
        """Wait for the next result, or for `gives_up`, which is asked from time to time; return whether it is there."""
        while self._end is None and self._next is None:
            try:
                self._next = self._ready.get(timeout=POLL_INTERVAL)
            except queue.Empty:
                if gives_up():
                    return False
        return True

    def __next__(self) -> Result:
        if self._end is None:
            result, self._end = self._next or self._ready.get()
            self._next = None
            self._room.release()
        if self._end is not None:
            raise self._end
        return result

    def close(self, timeout: float = JOIN_TIMEOUT) -> None:
        """Stop the thread after the item in progress, and close the iterator. Returns after the timeout at most.

        Later calls do not wait again.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._room.release()
        self._thread.join(timeout)
        self._end = self._end or StopIteration()

    def _run(self, function: Callable[[Item], Result], items: Iterator[Item], close_items: Callable[[], None]) -> None:
        end: BaseException = StopIteration()
        try:
            try:
                self._put_results(function, items)
            finally:
                close_items()
        except BaseException as error:
            self.error = end = error
        self._ready.put((None, end))

    def _put_results(self, function: Callable[[Item], Result], items: Iterator[Item]) -> None:
        while True:
            self._room.acquire()  # before the next item is read, because batches are large
            if self._stop.is_set():
                return
            try:
                item = next(items)
            except StopIteration:
                return
            start = time.perf_counter()
            result = function(item)
            self.busy += time.perf_counter() - start
            self._ready.put((result, None))
            del item, result  # the thread keeps no batch alive while it waits
