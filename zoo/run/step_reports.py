"""What the ranks tell each other between updates: signals, samples that could not be read, and errors of reading."""

from typing import Any, NamedTuple

from zoo.data.errors import UnreadableData, UserError
from zoo.data.stream import UnreadableSample
from zoo.distributed.group import Group, Polling
from zoo.run.prefetch import BadSampleTracker, Prefetcher
from zoo.run.signals import StopSignal


class Stop(NamedTuple):
    """Why all ranks stop after an update.

    Attributes:
        signal: its number, None without one.
        error: what ends the run, None without one.
    """

    signal: int | None = None
    error: UserError | None = None


class StepReports:
    """Exchange of reports between all ranks, every so many updates (zoo/distributed/polling.py).

    A signal may come to any rank at any moment, and all must stop after the same update. So they must where batches
    that are read ahead end in an error, to save what was done before.
    """

    def __init__(self, group: Group, signal: StopSignal):
        """Receive nothing yet. signal: of this process."""
        self._polling, self._signal = Polling(group), signal

    def is_due(self, done: int) -> bool:
        """Return whether the ranks exchange after `done` updates; the same on all ranks."""
        return self._polling.is_due(done)

    def exchange(self, done: int, batches: Prefetcher, bad_samples: BadSampleTracker) -> Stop:
        """Exchange after `done` updates, and count the unreadable samples of all ranks. Collective."""
        reports = self._polling.exchange(done, self._of_this_rank(batches))
        samples = [UnreadableSample(**report["sample"]) for report in reports if "sample" in report]
        errors = [UnreadableData(report["error"], report["unreadable"]) for report in reports if "error" in report]
        try:
            bad_samples.add(sorted(samples, key=lambda sample: sample.epoch))  # which are counted by epoch
        except UnreadableData as too_many:
            errors.insert(0, too_many)
        signals = [report["signal"] for report in reports if "signal" in report]
        return Stop(next(iter(signals), None), next(iter(errors), None))

    def _of_this_rank(self, batches: Prefetcher) -> list[dict[str, Any]]:
        number, failure = self._signal.received, batches.failure
        reports: list[dict[str, Any]] = [{"signal": number}] if number else []
        reports += [{"sample": vars(sample)} for sample in batches.pop_unreadable()]
        if failure:
            reports.append({"error": str(failure), "unreadable": getattr(failure, "unreadable", {})})
        return reports
