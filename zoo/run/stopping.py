"""Signals and unreadable data, which end a run before its last step on all ranks alike."""

import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from zoo.data.errors import Option, UnreadableData, UserError
from zoo.data.stream import Dataset, UnreadableSample, find_bad
from zoo.distributed.group import Group, Polling
from zoo.logs.journal import Event

SEARCH_SECONDS = 20.0  # how long to look for further unreadable files before a run stops because of them


class EvaluationStopped(Exception):
    """A signal has ended an evaluation on all ranks; there are no metrics."""

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


class BadSampleTracker:
    """The unreadable samples of all ranks; each is reported once per run."""

    def __init__(
        self,
        dataset: Dataset,
        report: Callable[[UnreadableSample], None],
        by_epoch: dict[int, set[str]] | None = None,
    ):
        """Go on with the names of the unreadable samples of each epoch so far, to which `add` adds."""
        self.dataset, self.report, self._by_epoch = dataset, report, {} if by_epoch is None else by_epoch
        self.reasons: dict[str, str] = {}  # sample name -> reason, over the process

    def add(self, unreadable: list[UnreadableSample]) -> None:
        """Record samples, of any epochs: the ranks, and what they read ahead, are not in the same one.

        Raises:
            UnreadableData: the unreadable samples of an epoch exceed data.max_bad.
        """
        for sample in unreadable:
            if sample.name not in self.reasons:
                self.reasons[sample.name] = sample.reason
                self.report(sample)
            names = self._by_epoch.setdefault(sample.epoch, set())
            names.add(sample.name)
            if len(names) > self.dataset.settings.max_bad * len(self.dataset):
                raise self._too_many(sample.epoch)

    def _too_many(self, epoch: int) -> UnreadableData:
        further, opened = find_bad(self.dataset, SEARCH_SECONDS)
        reasons = {**self.reasons, **{sample.name: sample.reason for sample in further}}
        count, total = len(self._by_epoch[epoch]), len(self.dataset)
        lines = [
            f"too many unreadable training samples: {count} of {total} ({count / total:.2%}) so far in epoch "
            f"{epoch + 1}, data.max_bad is {self.dataset.settings.max_bad}",
            f"  known so far ({opened} of {total} files opened):",
            *(f"  {name}: {reason}" for name, reason in reasons.items()),
            "  repair or remove them, or continue without them with ",
        ]
        rest = "; zoo data check -c RECIPE --deep reads the whole set"
        return UnreadableData("\n".join(lines), Option("data.max_bad", "FRACTION"), rest, unreadable=reasons)


class Stop(NamedTuple):
    """Reason for which all ranks stop."""

    signal: int | None = None
    error: UserError | None = None


class Reports(Polling):
    """Exchange of reports between all ranks, every so many updates or batches (zoo/distributed/group.py).

    A signal may come to any rank at any moment, and all must stop after the same update. So they must where batches
    that are read ahead end in an error, to save what was done before.
    """

    def __init__(self, group: Group, signal: StopSignal):
        """Receive nothing yet. signal: of this process."""
        super().__init__(group)
        self._signal = signal

    def share(
        self,
        done: int,
        unreadable: Sequence[UnreadableSample],
        count: Callable[[list[UnreadableSample]], None],
        failure: UserError | None = None,
    ) -> Stop:
        """Exchange after `done` updates or batches. Collective.

        Args:
            unreadable: samples of this rank that could not be read since the last exchange.
            count: receives those of all ranks; an UnreadableData that it raises comes before other errors.
            failure: what has ended reading ahead on this rank, None if nothing has.
        """
        mine: list[dict[str, Any]] = [{"signal": self._signal.received}] if self._signal.received else []
        mine += [{"sample": vars(sample)} for sample in unreadable]
        errors: list[UnreadableData] = []
        if failure:
            errors.append(UnreadableData(failure, unreadable=getattr(failure, "unreadable", {})))
            mine.append({"error": str(failure), "unreadable": errors[0].unreadable})
        reports = self.exchange(done, mine)
        errors += [
            UnreadableData(report["error"], unreadable=report["unreadable"]) for report in reports if "error" in report
        ]
        try:
            count([UnreadableSample(**report["sample"]) for report in reports if "sample" in report])
        except UnreadableData as too_many:
            errors.insert(0, too_many)
        signals = [report["signal"] for report in reports if "signal" in report]
        return Stop(next(iter(signals), None), next(iter(errors), None))


def unreadable_summary(events: Sequence[Event], total: int) -> list[str]:
    """Return a line on the training samples that a run has replaced, over all of its processes; none without any."""
    names = {event["name"] for event in events if event["event"] == "bad" and event["replaced_by"]}
    if not names:
        return []
    return [
        f"unreadable training samples: {len(names)} of {total} ({len(names) / total:.2%}), replaced by others whenever "
        "they came; the events `bad` in events.jsonl name them"
    ]
