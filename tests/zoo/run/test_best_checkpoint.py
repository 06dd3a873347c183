"""The best checkpoint after a kill or a damage."""

import math
import os

import pytest

from zoo.logs.journal import Journal
from zoo.run import checkpoint


@pytest.fixture
def folder(tmp_path):
    """A run with checkpoints of the steps 4, 8 and 12."""
    for step in (4, 8, 12):
        os.makedirs(checkpoint.path_of(str(tmp_path), step))
    return str(tmp_path)


def test_the_first_of_the_best_that_exist(folder):
    assert checkpoint.find_best(folder, {2: 0.9, 4: 0.5, 8: 0.7, 12: 0.7}) == (8, 0.7)
    assert checkpoint.find_best(folder, {4: 0.5, 8: 0.7}, before=8) == (4, 0.5)
    assert checkpoint.find_best(folder, {4: math.nan, 8: 0.1}) == (8, 0.1)
    assert checkpoint.find_best(folder, {4: math.nan}) is checkpoint.find_best(folder, {}) is None


@pytest.mark.parametrize(
    "evaluations, logged, steps",
    [
        ({4: 0.9, 8: 0.7}, [("eval", 4), ("eval", 8)], [4]),  # a kill has prevented the event `best`
        ({4: 0.5, 8: 0.7}, [("eval", 4), ("best", 4)], [4]),  # the evaluation is repeated and adds the event itself
        ({4: 0.5, 8: 0.7}, [("eval", 4), ("best", 4), ("eval", 8)], [4, 8]),
    ],
)
def test_a_resume_links_the_best_and_adds_its_event(folder, evaluations, logged, steps):
    with Journal(folder, []) as journal:
        for name, step in logged:
            journal.add(name, step=step, **({"accuracy": evaluations[step]} if name == "eval" else {}))
        checkpoint.restore_links(folder, journal, evaluations, 8)
        assert [event["step"] for event in journal.events if event["event"] == "best"] == steps
    best = max(evaluations, key=evaluations.get)
    assert os.readlink(f"{folder}/checkpoints/best") == f"step-{best:08d}"
