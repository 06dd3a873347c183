"""SIGTERM, SIGHUP and Ctrl-C as requests to stop after the current step or batch of an evaluation."""

import signal
import threading
from types import FrameType
from typing import Any


class EvaluationStopped(Exception):
    """A signal has ended an evaluation on all ranks; there are no metrics.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


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
            numbers = [signal.SIGTERM, signal.SIGINT]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it, so that the run goes on
                numbers.append(signal.SIGHUP)
            self._before = {number: signal.signal(number, self._receive) or signal.SIG_DFL for number in numbers}

    def restore(self) -> None:
        """Give the signals back to whoever handled them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
