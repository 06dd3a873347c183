"""Progress of a run, what its ranks tell each other between updates, and its loss scale."""

import math
import signal

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.training import events
from zoo.data.errors import UnreadableData, UserError
from zoo.data.stream import UnreadableSample
from zoo.run.progress import Progress, parse_progress
from zoo.run.stopping import Reports, Stop, StopSignal


def evaluated(*accuracies):
    return Progress(dict(enumerate(accuracies, 1)))


@pytest.mark.parametrize(
    "accuracies, count",
    [
        ((), 0),
        ((0.5,), 0),
        ((0.5, 0.6, 0.7), 0),
        ((0.5, 0.5), 1),  # equal is not better
        ((0.5, 0.7, 0.6, 0.65), 2),
        ((0.5, 0.7, 0.6, 0.8), 0),
        ((0.5, math.nan, 0.4), 2),
        ((math.nan, math.nan), 2),
        ((math.nan, 0.1), 0),
        ((0.0,), 0),
    ],
)
def test_evaluations_without_improvement(accuracies, count):
    assert evaluated(*accuracies).without_improvement() == count


def test_a_run_ends_with_the_evaluation_that_reaches_the_limit():
    assert evaluated(0.5, 0.4).early_end(2) is None
    message = evaluated(0.5, 0.4, 0.5).early_end(2)
    assert "in the last 2 evaluations (the best is 0.5000; train.early_stopping=2)" in message
    assert evaluated(0.5, *[0.4] * 99).early_end(None) is None and evaluated().early_end(1) is None
    assert "none was finite" in evaluated(math.nan).early_end(1)


def test_its_file_gives_it_again(tmp_path):
    path, written = (
        tmp_path / "progress.json",
        Progress({3: 0.5, 6: math.nan}, {"b", "\udcff.jpg"}, [(0.1, 3), (math.inf, 3)]),
    )
    path.write_bytes(written.content())
    found = parse_progress(str(path))
    assert list(found.evaluations) == [3, 6] and math.isnan(found.evaluations[6]) and found.best() == 0.5
    assert found.unreadable == written.unreadable and found.losses[0] == (0.1, 3) and math.isnan(found.losses[1][0])
    path.write_text("[]")
    with pytest.raises(UserError, match="progress.json cannot be read"):
        parse_progress(str(path))


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
    reports = Reports(group, stop)
    assert reports.is_due(3)
    return reports.share(3, samples, bad.add, failure), group.mine, bad.seen


def test_nothing_to_tell():
    assert exchange() == (Stop(), [], [])


def test_a_signal_of_any_rank_stops_all():
    assert exchange(received=signal.SIGTERM)[0] == exchange({"signal": 15})[0] == Stop(15)


def test_unreadable_samples_of_all_ranks_are_counted():
    other = {"epoch": 1, "name": "c", "reason": "cut", "replaced_by": "d"}
    stop, mine, seen = exchange({"sample": vars(BAD)}, samples=[UnreadableSample(**other)])
    assert stop == Stop() and mine == [{"sample": other}] and [sample.name for sample in seen] == ["c", "a.jpg"]
    error = UnreadableData("too many", unreadable={"a.jpg": "empty"})
    assert exchange(too_many=error)[0].error is error


def test_what_a_rank_cannot_read_ahead_stops_all_with_its_message():
    failure = UnreadableData("20 in a row", unreadable={"a.jpg": "empty"})
    stop, mine, _ = exchange(failure=failure)
    assert str(stop.error) == "20 in a row" and stop.error.unreadable == {"a.jpg": "empty"}
    stop, _, _ = exchange(*mine)  # as the other rank hears it
    assert str(stop.error) == "20 in a row" and stop.error.unreadable == {"a.jpg": "empty"}
    stop, mine, _ = exchange(failure=UserError("a reader was killed"), received=signal.SIGTERM)
    assert (str(stop.error), stop.signal) == ("a reader was killed", 15) and len(mine) == 2


TINY = {
    "data.num_classes": 20,
    "data.size": 16,
    "data.val_samples": 10,
    "data.workers": 0,
    "model.depth": 18,
    "train.precision": "fp16",
    "train.batch": 2,
    "train.eval_batch": 10,
    "train.log_every": 1,
    "device": "cpu",
}


def run(*words, **changes):
    settings = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    assert call_zoo("train", *words, *pairs) == 0


def found(folder):
    """Return the loss scale of the event begin, and those of all logged updates."""
    begin = next(event for event in events(folder) if event["event"] == "begin")
    return begin["loss_scale"], [event["scale"] for event in events(folder) if event["event"] == "train"]


@pytest.mark.slow
def test_a_static_scale_is_that_of_the_recipe_and_a_dynamic_one_starts_there(tmp_path):
    new, folder = ["-c", "configs/arcface_synthetic.yaml", "--max-steps", "2"], tmp_path / "run"
    run(*new, "--out", str(folder), optim__loss_scale=64)
    assert found(folder) == ({"initial": 64.0, "dynamic": False}, [64.0, 64.0])
    for number, changes in ((3, {"optim__loss_scale": 32}), (4, {"optim__loss_scale": "dynamic"})):
        run("--resume", str(folder), "--max-steps", str(number), **changes)
        assert found(folder)[1][-1] == 32.0
    run(*new, "--out", str(tmp_path / "dynamic"), optim__initial_loss_scale=16)
    begin, scales = found(tmp_path / "dynamic")
    assert begin == {"initial": 16.0, "dynamic": True} and scales[0] == 16.0
    run(*new, "--out", str(tmp_path / "fp32"), optim__loss_scale=64, train__precision="fp32")
    assert found(tmp_path / "fp32") == (None, [1.0, 1.0])
