"""Throughput between two log lines, without what is not training."""
import time
from typing import Dict


class Meter:
    """Laps of training time: evaluation and checkpoints are left out by `pause`."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent, self._samples, self._waited = 0.0, 0, 0.0

    def add(self, samples: int) -> None:
        self._samples += samples

    def pause(self) -> None:
        self._spent += time.perf_counter() - self._start

    def go_on(self) -> None:
        self._start = time.perf_counter()

    def lap(self, waited: float) -> Dict[str, float]:
        """samples_per_s and wait_share (of the time, for data) since the last lap; waited: the feed's total in s."""
        self.pause()
        spent = max(self._spent, 1e-9)
        result = {"samples_per_s": self._samples / spent, "wait_share": min((waited - self._waited) / spent, 1.0)}
        self._spent, self._samples, self._waited = 0.0, 0, waited
        self.go_on()
        return result
