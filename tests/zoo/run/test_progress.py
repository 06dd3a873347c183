"""Progress of a run: evaluations without improvement, its file, and what older versions left in the events."""

import math

import pytest

from zoo.data.errors import UserError
from zoo.logs.journal import append
from zoo.run.resume import Progress, parse_progress, progress_of_events


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
    path, written = tmp_path / "progress.json", Progress({3: 0.5, 6: math.nan}, {"b", "\udcff.jpg"})
    path.write_bytes(written.content())
    found = parse_progress(str(path))
    assert list(found.evaluations) == [3, 6] and math.isnan(found.evaluations[6]) and found.best() == 0.5
    assert found.unreadable == written.unreadable
    path.write_text("[]")
    with pytest.raises(UserError, match="progress.json cannot be read"):
        parse_progress(str(path))


def test_the_events_of_an_older_run_give_it_without_what_a_resume_reverts_and_what_was_mended():
    events = []
    for event in (
        *({"event": "eval", "step": step, "accuracy": 1 / step} for step in (1, 2, 3)),
        {"event": "bad", "name": "a"},
        {"event": "unreadable", "name": "b"},
        {"event": "resume", "step": 2},
        {"event": "data_changed", "mended": ["b0"]},
    ):
        append(events, event)
    found = progress_of_events(events, lambda sample: [f"{sample}0", f"{sample}1"])
    assert found == Progress({1: 1.0, 2: 0.5}, {"a0", "a1", "b1"})
