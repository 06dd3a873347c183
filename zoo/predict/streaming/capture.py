"""Capture of live sources: a thread decodes, and only the newest frame is kept, so that latency is bounded."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from zoo.predict.streaming.sources import Frame, Source, stalled

POLL = 0.1  # seconds between looks at what may end the wait for a frame


class Captured(NamedTuple):
    """A frame and when it was captured, on the clock of time.monotonic."""

    frame: Frame
    at: float


class LatestFrame:
    """The newest frame of a source. A frame that is not taken before the next one comes is dropped, and counted.

    Attributes:
        dropped: number of frames so far.
    """

    def __init__(self, source: Source, every: int, timeout: float, stopped: Callable[[], bool]):
        """Start the thread.

        Args:
            source: opened.
            every: only each every-th frame counts; the others are decoded and passed over.
            timeout: seconds after which a source that gives no frame is given up.
            stopped: whether the program has been asked to end.
        """
        self.source, self.every, self.timeout, self.stopped = source, every, timeout, stopped
        self.dropped = 0
        self._slot: Captured | None = None
        self._last_sign = time.monotonic()
        self._error: Exception | None = None
        self._has_ended = self._is_closed = False
        self._changed = threading.Condition()
        # The thread may wait for a source that never answers again, and must not keep the program alive.
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Captured]:
        """Yield the newest frame whenever one is asked for, until the source ends or the program has been stopped.

        Raises:
            UserError: the source has failed or stalled.
        """
        while captured := self._take():
            yield captured

    def close(self) -> None:
        """Stop the thread and release the source; a source that does not answer is left to the end of the program."""
        self._is_closed = True
        self._thread.join(timeout=1)
        if not self._thread.is_alive():
            self.source.close()

    def _take(self) -> Captured | None:
        with self._changed:
            while self._slot is None:
                if self._error:
                    raise self._error
                if self._has_ended or self.stopped():
                    return None
                if time.monotonic() - self._last_sign > self.timeout:
                    raise stalled(self.source.name, self.timeout)
                self._changed.wait(POLL)
            captured, self._slot = self._slot, None
            return None if self.stopped() else captured

    def _read(self) -> None:
        try:
            for frame in self.source.frames:
                self._last_sign = time.monotonic()
                if self._is_closed:
                    return
                if frame.number % self.every == 0:
                    self._replace(Captured(frame, self._last_sign))
        except Exception as error:  # for the thread that takes the frames
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify()

    def _replace(self, captured: Captured) -> None:
        with self._changed:
            self.dropped += self._slot is not None
            self._slot = captured
            self._changed.notify()


def in_real_time(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yield the frames of a file when they are due, as a camera would."""
    start = time.monotonic()
    for frame in frames:
        time.sleep(max(0.0, start + frame.time - time.monotonic()))
        yield frame


def one_by_one(frames: Iterator[Frame], stopped: Callable[[], bool]) -> Iterator[Captured]:
    """Yield every frame of a file, each as soon as the one before is done."""
    for frame in frames:
        if stopped():
            return
        yield Captured(frame, time.monotonic())
