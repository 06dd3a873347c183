"""SIGTERM and Ctrl-C as requests to stop after the current step."""

import signal
from types import FrameType


class StopSignal:
    """The signal that asks this process to stop.

    Attributes:
        received: the number of the signal, None before it comes. A second Ctrl-C interrupts at once.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
