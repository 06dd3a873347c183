"""SIGTERM and Ctrl-C as a wish to stop after the current step."""

import signal


class Stop:
    """`wished` is the signal that came, or None. A second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.wished: int | None = None
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, _frame) -> None:
        self.wished = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
