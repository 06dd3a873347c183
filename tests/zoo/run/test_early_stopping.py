"""Evaluations without improvement, counted from the journal."""

import math

import pytest

from zoo.logs.journal import append
from zoo.run import stopping


def evaluations(*accuracies):
    found = []
    for number, accuracy in enumerate(accuracies, 1):
        append(found, {"event": "train", "step": number})
        append(found, {"event": "eval", "step": number, "accuracy": accuracy})
    return found


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
    assert stopping.evaluations_without_improvement(evaluations(*accuracies)) == count


def test_a_run_ends_with_the_evaluation_that_reaches_the_limit():
    assert stopping.explain_early(evaluations(0.5, 0.4), 2) is None
    message = stopping.explain_early(evaluations(0.5, 0.4, 0.5), 2)
    assert (
        message == "the metric has not improved in the last 2 evaluations (the best is 0.5000; train.early_stopping=2)"
    )
    assert stopping.explain_early(evaluations(0.5, *[0.4] * 99), None) is None
    assert stopping.explain_early([], 1) is None
    assert "none was finite" in stopping.explain_early(evaluations(math.nan), 1)


def test_what_a_resume_reverts_does_not_count():
    events = evaluations(0.5, 0.4, 0.4)
    append(events, {"event": "resume", "step": 2})
    assert stopping.evaluations_without_improvement(events) == 1
