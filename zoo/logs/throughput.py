"""Throughput between two log lines, without what is not training."""

import time


class Throughput:
    """Laps of training time: evaluation and checkpoints are left out by `pause`."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent, self._samples, self._waited = 0.0, 0, 0.0

    def add(self, samples: int) -> None:
        self._samples += samples

    def pause(self) -> None:
        self._spent += time.perf_counter() - self._start

    def resume(self) -> None:
        self._start = time.perf_counter()

    def read(self, waited: float) -> dict[str, float]:
        """samples_per_s and data_wait_fraction (of the time, for data) since the last lap; waited: the feed's total in s."""
        self.pause()
        spent = max(self._spent, 1e-9)
        result = {
            "samples_per_s": self._samples / spent,
            "data_wait_fraction": min((waited - self._waited) / spent, 1.0),
        }
        self._spent, self._samples, self._waited = 0.0, 0, waited
        self.resume()
        return result
