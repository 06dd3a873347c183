"""What the ranks tell each other between updates, of two ranks, one of which is another process."""

import signal
from types import SimpleNamespace

from zoo.data.errors import UnreadableData, UserError
from zoo.data.stream import UnreadableSample
from zoo.run.stopping import StepReports, Stop, StopSignal

BAD = UnreadableSample(0, "a.jpg", "empty", "b.jpg")


class Group:
    """Rank 0 of two; `theirs` is what the other reports."""

    rank, size = 0, 2

    def __init__(self, *theirs):
        self.theirs, self.mine = theirs, []

    def concatenate(self, items):
        self.mine = items[1:]
        return [*items, *self.theirs]


class BadSamples:
    def __init__(self, error=None):
        self.error, self.seen = error, []

    def add(self, samples):
        self.seen += samples
        if self.error:
            raise self.error


def exchange(*theirs, samples=(), failure=None, received=None, too_many=None):
    stop, group, bad = StopSignal(), Group(*theirs), BadSamples(too_many)
    stop.received = received
    batches = SimpleNamespace(failure=failure, pop_unreadable=lambda: list(samples))
    reports = StepReports(group, stop)
    assert reports.is_due(3)
    return reports.exchange(3, batches, bad), group.mine, bad.seen


def test_nothing_to_tell():
    assert exchange() == (Stop(), [], [])


def test_a_signal_of_any_rank_stops_all():
    assert exchange(received=signal.SIGTERM)[0] == exchange({"signal": 15})[0] == Stop(15)


def test_unreadable_samples_of_all_ranks_are_counted_by_epoch():
    other = {"epoch": 1, "name": "c", "reason": "cut", "replaced_by": "d"}
    stop, mine, seen = exchange({"sample": vars(BAD)}, samples=[UnreadableSample(**other)])
    assert stop == Stop() and mine == [{"sample": other}] and [sample.name for sample in seen] == ["a.jpg", "c"]
    error = UnreadableData("too many", {"a.jpg": "empty"})
    assert exchange(too_many=error)[0].error is error


def test_what_a_rank_cannot_read_ahead_stops_all_with_its_message():
    failure = UnreadableData("20 in a row", {"a.jpg": "empty"})
    stop, mine, _ = exchange(failure=failure)
    assert str(stop.error) == "20 in a row" and stop.error.unreadable == {"a.jpg": "empty"}
    stop, _, _ = exchange(*mine)  # as the other rank hears it
    assert str(stop.error) == "20 in a row" and stop.error.unreadable == {"a.jpg": "empty"}
    stop, mine, _ = exchange(failure=UserError("a reader was killed"), received=signal.SIGTERM)
    assert (str(stop.error), stop.signal) == ("a reader was killed", 15) and len(mine) == 2
