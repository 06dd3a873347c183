"""Read-ahead of an update's micro-batches, and the record of samples that could not be read."""

import time
from collections.abc import Callable, Iterator

from data.errors import UserError
from data.stream import Dataset, LoadedBatch, UnreadableSample, find_bad
from zoo.trainer.protocol import DeviceBatch, Trainer

SEARCH_SECONDS = 20.0  # how long to look for further unreadable files before a run stops because of them


class Prefetcher:
    """Micro-batches on the device, one update ahead.

    The loop takes the micro-batches of an update, launches the step, and then calls `prefetch`, so that loading and
    copying overlap with the computation.

    Attributes:
        data_wait: seconds spent waiting for the input pipeline so far.
    """

    def __init__(self, stream: Iterator[LoadedBatch], trainer: Trainer, accumulate: int = 1):
        """Load the first update's micro-batches.

        Args:
            stream: batches of this rank in order, with the samples that could not be read.
            trainer: copies the batches to its device.
            accumulate: micro-batches per update.
        """
        self.stream, self.trainer, self.accumulate = stream, trainer, accumulate
        self.data_wait = 0.0
        self._unreadable: list[UnreadableSample] = []
        self._ahead: list[DeviceBatch] = []
        self.prefetch()

    def take(self) -> list[DeviceBatch]:
        """Return the micro-batches of the next update.

        Raises:
            StopIteration: the stream has ended.
        """
        if not self._ahead:
            raise StopIteration
        micro_batches, self._ahead = self._ahead, []
        return micro_batches

    def prefetch(self) -> None:
        """Load the micro-batches of the next update, fewer or none at the end of the stream."""
        while len(self._ahead) < self.accumulate:
            start = time.perf_counter()
            batch, unreadable = next(self.stream, (None, []))
            self.data_wait += time.perf_counter() - start
            self._unreadable += unreadable
            if batch is None:
                return
            self._ahead.append(self.trainer.to_device(batch))

    def pop_unreadable(self) -> list[UnreadableSample]:
        """Return the samples that could not be read since the last call."""
        unreadable, self._unreadable = self._unreadable, []
        return unreadable


class BadSampleTracker:
    """The unreadable samples of all ranks; each is reported once per run."""

    def __init__(self, dataset: Dataset, report: Callable[[UnreadableSample], None]):
        self.dataset, self.report = dataset, report
        self.reasons: dict[str, str] = {}  # sample name -> reason, over the run
        self._epoch = 0
        self._names_of_epoch: set[str] = set()

    def add(self, unreadable: list[UnreadableSample]) -> None:
        """Record samples.

        Raises:
            UserError: the unreadable samples of an epoch exceed data.max_bad.
        """
        for sample in unreadable:
            if sample.name not in self.reasons:
                self.reasons[sample.name] = sample.reason
                self.report(sample)
            if sample.epoch != self._epoch:
                self._epoch, self._names_of_epoch = sample.epoch, set()
            self._names_of_epoch.add(sample.name)
            if len(self._names_of_epoch) > self.dataset.settings.max_bad * len(self.dataset):
                raise UserError(self._too_many())

    def _too_many(self) -> str:
        further, opened = find_bad(self.dataset, SEARCH_SECONDS)
        reasons = {**self.reasons, **{sample.name: sample.reason for sample in further}}
        count, total = len(self._names_of_epoch), len(self.dataset)
        return "\n".join(
            [
                f"too many unreadable training samples: {count} of {total} ({count / total:.2%}) so far in epoch "
                f"{self._epoch + 1}, data.max_bad is {self.dataset.settings.max_bad}",
                f"  known so far ({opened} of {total} files opened):",
                *(f"  {name}: {reason}" for name, reason in reasons.items()),
                "  repair or remove them, or continue without them with -o data.max_bad=FRACTION; "
                "python tools/check_data.py -c RECIPE reads the whole set",
            ]
        )
