"""Read-ahead of an update's micro-batches, and the record of samples that could not be read."""

import time
from collections.abc import Callable, Sequence
from itertools import islice

from zoo.data.errors import UnreadableData, UserError
from zoo.data.stream import BatchStream, Dataset, UnreadableSample, find_bad
from zoo.logs.journal import Event
from zoo.run.background import BackgroundMap
from zoo.run.decoding import Decode, Decoded, ReadyStream
from zoo.trainer.protocol import DeviceBatch, Trainer

SEARCH_SECONDS = 20.0  # how long to look for further unreadable files before a run stops because of them
SPARE = 3  # micro-batches read ahead beside those of the next update: as many may be late without a stop


class Prefetcher:
    """Micro-batches on the device, read and copied there by a thread of their own.

    Reading and copying overlap with the launch of a step as well as with its computation: the loop waits only when the
    next micro-batch is not there.

    Attributes:
        data_wait: seconds that `take` has waited for the input pipeline so far, the first update excluded.
    """

    def __init__(self, stream: BatchStream, trainer: Trainer, accumulate: int = 1, decode: Decode = ReadyStream):
        """Load the first update's micro-batches.

        Args:
            stream: batches of this rank in order, with the samples that could not be read.
            trainer: copies the batches to its device.
            accumulate: micro-batches per update.
            decode: decodes the images of the stream that are still encoded.
        """
        self.data_wait = 0.0
        self._accumulate = accumulate
        self._unreadable: list[UnreadableSample] = []

        def copy(decoded: Decoded) -> tuple[DeviceBatch, list[UnreadableSample]]:
            return trainer.to_device(decoded.batch, decoded.images), decoded.unreadable

        self._decoded = decode(stream)
        self._copies = BackgroundMap(copy, self._decoded, self._decoded.close, accumulate + SPARE)
        self._next: list[tuple[DeviceBatch, list[UnreadableSample]]] | None = self._fetch()

    @property
    def copying(self) -> float:
        """Seconds that the thread has spent in copying batches to the device and waiting for decoding there, so far."""
        return self._copies.busy + self._decoded.waiting

    @property
    def failure(self) -> UserError | None:
        """The error that `take` will raise, after what has been read before it; None as far as is known."""
        error = self._copies.error
        return error if isinstance(error, UserError) else None

    def take(self) -> list[DeviceBatch]:
        """Return the micro-batches of the next update, fewer at the end of the stream.

        Raises:
            StopIteration: the stream has ended.
            UserError: a batch cannot be read.
        """
        loaded, self._next = self._next, None
        if loaded is None:
            start = time.perf_counter()
            loaded = self._fetch()
            self.data_wait += time.perf_counter() - start
        if not loaded:
            raise StopIteration
        for _, unreadable in loaded:
            self._unreadable += unreadable
        return [device_batch for device_batch, _ in loaded]

    def pop_unreadable(self) -> list[UnreadableSample]:
        """Return the samples that could not be read, of the batches taken since the last call."""
        unreadable, self._unreadable = self._unreadable, []
        return unreadable

    def close(self) -> None:
        """End the thread and the stream."""
        self._copies.close()

    def _fetch(self) -> list[tuple[DeviceBatch, list[UnreadableSample]]]:
        return list(islice(self._copies, self._accumulate))


def unreadable_summary(events: Sequence[Event], total: int) -> list[str]:
    """Return a line on the training samples that a run has replaced, over all of its processes; none without any.

    Args:
        events: of the run.
        total: number of training samples.
    """
    names = {event["name"] for event in events if event["event"] == "bad" and event["replaced_by"]}
    if not names:
        return []
    return [
        f"unreadable training samples: {len(names)} of {total} ({len(names) / total:.2%}), replaced by others whenever "
        "they came; the events `bad` in events.jsonl name them"
    ]


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
            UnreadableData: the unreadable samples of an epoch exceed data.max_bad.
        """
        for sample in unreadable:
            if sample.name not in self.reasons:
                self.reasons[sample.name] = sample.reason
                self.report(sample)
            if sample.epoch != self._epoch:
                self._epoch, self._names_of_epoch = sample.epoch, set()
            self._names_of_epoch.add(sample.name)
            if len(self._names_of_epoch) > self.dataset.settings.max_bad * len(self.dataset):
                raise self._too_many()

    def _too_many(self) -> UnreadableData:
        further, opened = find_bad(self.dataset, SEARCH_SECONDS)
        reasons = {**self.reasons, **{sample.name: sample.reason for sample in further}}
        count, total = len(self._names_of_epoch), len(self.dataset)
        lines = [
            f"too many unreadable training samples: {count} of {total} ({count / total:.2%}) so far in epoch "
            f"{self._epoch + 1}, data.max_bad is {self.dataset.settings.max_bad}",
            f"  known so far ({opened} of {total} files opened):",
            *(f"  {name}: {reason}" for name, reason in reasons.items()),
            "  repair or remove them, or continue without them with -o data.max_bad=FRACTION; "
            "zoo data check -c RECIPE --deep reads the whole set",
        ]
        return UnreadableData("\n".join(lines), reasons)
