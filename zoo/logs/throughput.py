"""Training throughput between two log lines."""

import time


class Throughput:
    """Stopwatch of training time that is paused during evaluation and saving.

    Attributes:
        elapsed: seconds of training in the interval that `read` has ended last.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._elapsed, self._samples, self._data_wait = 0.0, 0, 0.0
        self.elapsed = 0.0

    def add(self, samples: int) -> None:
        """Count samples that were trained on."""
        self._samples += samples

    def pause(self) -> None:
        """Stop the clock."""
        self._elapsed += time.perf_counter() - self._started

    def resume(self) -> None:
        """Start the clock again after `pause`."""
        self._started = time.perf_counter()

    def read(self, data_wait: float) -> dict[str, float]:
        """Return the throughput since the last call, and start the next interval.

        Args:
            data_wait: Seconds spent waiting for data since the start of the run (`Prefetcher.data_wait`).

        Returns:
            samples_per_s, and data_wait_fraction: the fraction of the time spent waiting for data.
        """
        self.pause()
        self.elapsed = elapsed = max(self._elapsed, 1e-9)
        throughput = {
            "samples_per_s": self._samples / elapsed,
            "data_wait_fraction": min((data_wait - self._data_wait) / elapsed, 1.0),
        }
        self._elapsed, self._samples, self._data_wait = 0.0, 0, data_wait
        self.resume()
        return throughput
