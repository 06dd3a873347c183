"""SIGTERM and Ctrl-C as requests to stop after the current step."""

import signal
import threading
from types import FrameType
from typing import Any


class StopSignal:
    """The signal that asks this process to stop.

    Attributes:
        received: the number of the signal, None before it comes. A second Ctrl-C interrupts at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Receive signals from now on; Python delivers them to the main thread alone."""
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGTERM, signal.SIGINT)
            self._before = {number: signal.signal(number, self._receive) or signal.SIG_DFL for number in numbers}

    def restore(self) -> None:
        """Give the signals back to whoever handled them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
