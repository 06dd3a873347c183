"""The best checkpoint after a kill, a power cut or a damage."""

import json
import math
import os

import pytest

from zoo.logs.journal import Journal
from zoo.run import checkpoint


@pytest.fixture
def make(tmp_path):
    """Return a function that makes checkpoints, with an accuracy beside those that have one."""

    def make(**accuracies):
        for name, accuracy in accuracies.items():
            path = checkpoint.path_of(str(tmp_path), int(name[1:]))
            os.makedirs(path)
            if accuracy is not None:
                with open(os.path.join(path, checkpoint.EVALUATION), "w") as file:
                    file.write(accuracy if isinstance(accuracy, str) else json.dumps({"accuracy": accuracy}))
        return str(tmp_path)

    return make


def evaluations(**accuracies):
    return [{"event": "eval", "step": int(name[1:]), "accuracy": value} for name, value in accuracies.items()]


def test_the_first_of_the_best_that_exist(make):
    folder = make(s4=None, s8=None, s12=None)
    assert checkpoint.find_best(folder, evaluations(s2=0.9, s4=0.5, s8=0.7, s12=0.7)) == (8, 0.7)
    assert checkpoint.find_best(folder, evaluations(s4=0.5, s8=0.7), before=8) == (4, 0.5)
    assert checkpoint.find_best(folder, []) is None


def test_metrics_beside_a_checkpoint_count_where_the_event_was_lost(make):
    """As after a kill before the event, or a power cut that took the end of the journal."""
    folder = make(s4=0.9, s8=None, s12="{", s16='{"accuracy": null}', s20="[1]")
    assert checkpoint.find_best(folder, evaluations(s8=0.7)) == (4, 0.9)
    assert checkpoint.find_best(folder, evaluations(s4=0.1, s8=0.7)) == (8, 0.7)  # the event counts where there is one


def test_what_is_not_finite_is_never_the_best(make):
    folder = make(s4=None, s8=None)
    assert checkpoint.find_best(folder, evaluations(s4=math.nan, s8=0.1)) == (8, 0.1)
    assert checkpoint.find_best(folder, evaluations(s4=math.nan)) is None


def restored(folder, step, events):
    """Resume a run of these events; return the steps of its `best` events, and the checkpoint that is linked."""
    with Journal(folder, []) as journal:
        for event in events:
            journal.add(**event)
        checkpoint.restore_links(folder, journal, step)
        told = [event["step"] for event in journal.events if event["event"] == "best"]
    return told, os.path.basename(os.path.realpath(os.path.join(folder, checkpoint.FOLDER, "best")))


def test_a_resume_adds_the_best_event_that_a_kill_has_prevented(make):
    folder = make(s4=0.9, s8=0.7)
    assert restored(folder, 8, evaluations(s4=0.9, s8=0.7)) == ([4], "step-00000004")


def test_an_evaluation_that_is_repeated_adds_the_best_event_itself(make):
    """The kill came after the metrics beside the checkpoint and before the event."""
    folder = make(s4=0.5, s8=0.7)
    events = [*evaluations(s4=0.5), {"event": "best", "step": 4}]
    assert restored(folder, 8, events) == ([4], "step-00000008")
