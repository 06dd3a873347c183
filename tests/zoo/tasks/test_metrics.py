"""Top-1, top-5 and loss of zoo/tasks/classify.py against plain loops in float64."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.tasks.classify import CrossEntropy, Metric, Settings, objective

numbers = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])  # few values: many ties


def batch(labels, valid=None):
    labels = np.asarray(labels, np.int64)
    return {"label": labels, "valid": np.asarray(np.ones(len(labels)) if valid is None else valid, np.uint8)}


def measured(scores, labels, valid=None, views=1):
    metric = Metric(SimpleNamespace(views=views))
    metric.update(np.asarray(scores, np.float32), batch(labels, valid))
    return metric.result(metric.state)


def is_top(row, label, k):
    """Whether fewer than k of the other classes are as good as the label's, so that a tie counts against it."""
    return (
        label >= 0
        and not math.isnan(row[label])
        and sum(not row[other] < row[label] for other in range(len(row)) if other != label) < k
    )


def brute(scores, labels, valid=None, views=1):
    rows = []
    for i in range(len(labels)):
        mean = [sum(float(scores[i * views + view][k]) for view in range(views)) / views for k in range(len(scores[0]))]
        if valid is None or valid[i]:
            rows.append((mean, labels[i]))
    losses = [math.log(sum(math.exp(value - row[label]) for value in row)) for row, label in rows if label >= 0]
    return {
        "top1": sum(is_top(row, label, 1) for row, label in rows) / len(rows),
        "top5": sum(is_top(row, label, 5) for row, label in rows) / len(rows),
        "loss": sum(losses) / max(len(losses), 1),
        "samples": len(rows),
    }


@st.composite
def cases(draw):
    classes, samples, views = draw(st.integers(1, 9)), draw(st.integers(1, 7)), draw(st.integers(1, 3))
    scores = draw(
        st.lists(
            st.lists(numbers, min_size=classes, max_size=classes), min_size=samples * views, max_size=samples * views
        )
    )
    labels = draw(st.lists(st.integers(-1, classes - 1), min_size=samples, max_size=samples))
    valid = draw(st.lists(st.integers(0, 1), min_size=samples, max_size=samples).filter(any))
    return scores, labels, valid, views


@given(cases())
@settings(deadline=None, max_examples=200)
def test_against_plain_loops(case):
    got, want = measured(*case), brute(*case)
    assert got == pytest.approx(want, rel=1e-12, abs=1e-12)


@given(cases(), st.data())
@settings(deadline=None, max_examples=100)
def test_the_state_adds_up_over_any_split(case, data):
    """Over batches of one rank, and over ranks."""
    scores, labels, valid, views = case
    cut = data.draw(st.integers(0, len(labels)))
    whole, one, first, second = (Metric(SimpleNamespace(views=views)) for _ in range(4))
    scores = np.asarray(scores, np.float32)
    whole.update(scores, batch(labels, valid))
    for part, other in ((slice(0, cut), first), (slice(cut, None), second)):
        if len(labels[part]):
            rows = scores[(part.start or 0) * views : (len(labels) if part.stop is None else part.stop) * views]
            one.update(rows, batch(labels[part], valid[part]))
            other.update(rows, batch(labels[part], valid[part]))
    summed = {name: first.state[name] + second.state[name] for name in first.state}
    for state in (one.state, summed):
        assert Metric.result(state) == pytest.approx(Metric.result(whole.state), rel=1e-12, abs=1e-12)
    assert all(array.dtype == np.float64 and array.shape == () for array in whole.state.values())


def test_a_right_a_near_and_a_wrong_answer():
    scores = np.zeros((3, 10)) + np.arange(10)[::-1]  # class 0 is best
    got = measured(scores, [0, 4, 5])
    assert (got["top1"], got["top5"], got["samples"]) == (1 / 3, 2 / 3, 3)


def test_ties_count_against_the_label():
    assert measured([[1.0, 1.0, 0.0]], [0])["top1"] == 0 and measured([[1.0, 1.0, 0.0]], [1])["top1"] == 0
    assert measured([[0.0] * 6], [2])["top5"] == 0 and measured([[0.0] * 5 + [-1.0]], [2])["top5"] == 1
    assert measured(np.zeros((4, 400)), [0, 1, 2, 3])["top5"] == 0  # a net that answers nothing


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("classes", [1, 2, 4, 5, 6, 10])
def test_a_score_that_is_not_a_number_is_never_correct(classes):
    for label in range(classes):
        got = measured(np.full((1, classes), np.nan), [label])
        assert (got["top1"], got["top5"]) == (0, 0), (classes, label)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_one_score_that_is_not_a_number():
    row = [3.0, np.nan, 1.0, 0.0, -1.0, -2.0, -3.0]
    assert measured([row], [1])["top5"] == 0
    assert measured([row], [0])["top1"] == 0  # the other might have been better
    assert measured([row], [0])["top5"] == 1
    assert measured([row, [1.0] + [0.0] * 6], [1, 0])["top1"] == 0.5  # and the neighbour keeps its answer
    assert measured([[5.0, 0.0], [np.nan, 0.0]], [0], views=2)["top1"] == 0


@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinite_scores():
    assert measured([[np.inf, 0.0, 1.0]], [0])["top1"] == 1 and measured([[np.inf, np.inf, 1.0]], [0])["top1"] == 0
    assert measured([[-np.inf, 0.0, 1.0]], [0])["top1"] == 0


def test_an_unreadable_sample_is_counted_and_never_correct():
    got = measured([[1.0, 0.0], [1.0, 0.0]], [0, -1])
    assert (got["top1"], got["top5"], got["samples"]) == (0.5, 0.5, 2)
    assert got["loss"] == pytest.approx(math.log(1 + math.exp(-1)))  # of the readable one alone
    assert measured([[0.0, 1.0]], [-1]) == {"top1": 0, "top5": 0, "loss": 0, "samples": 1}


def test_padding_is_left_out():
    got = measured([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [0, 0, 0], [1, 1, 0])
    assert (got["top1"], got["samples"]) == (0.5, 2)
    metric = Metric(SimpleNamespace(views=1))
    metric.update(np.zeros((2, 3), np.float32), batch([0, 0], [0, 0]))  # a rank may get padding alone
    assert all(value == 0 for value in metric.state.values())


def test_views_are_averaged_before_the_best_is_taken():
    scores = [[3.0, 0.0, 2.0], [0.0, 3.0, 2.0]]  # each view says another class, together they say the third
    assert measured(scores, [2], views=2)["top1"] == 1
    assert measured(scores, [2, 2], views=1)["top1"] == 0
    both = measured(np.repeat(scores, 2, axis=0), [0, 1], views=2)  # the views of a sample are neighbours
    assert both["top1"] == 1


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_fewer_than_five_classes_are_all_in_the_top_five(classes):
    got = measured(np.zeros((3, classes)), [0] * 3)
    assert got["top5"] == 1 and got["top1"] == (classes == 1)


def test_loss_of_float32_logits_in_float64():
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(0, 30, (64, 400)).astype(np.float32), rng.integers(0, 400, 64)
    wide = scores.astype(np.longdouble)
    losses = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1) - wide[np.arange(64), labels]
    assert measured(scores, labels)["loss"] == pytest.approx(float(losses.mean()), rel=1e-13)


def test_loss_of_large_logits_is_finite():
    assert measured([[1e4, -1e4]], [1])["loss"] == pytest.approx(2e4)
    assert measured([[1e4, -1e4]], [0])["loss"] == 0
    assert measured(np.zeros((2, 400)), [0, 7])["loss"] == pytest.approx(math.log(400))


def test_scores_in_half_precision_are_summed_in_double():
    metric = Metric(SimpleNamespace(views=1))
    metric.update(np.zeros((2, 100), np.float16), batch([0, 1]))
    assert metric.result(metric.state)["loss"] == pytest.approx(math.log(100), rel=1e-12)


def test_the_objective():
    assert objective(Settings()) == CrossEntropy(0.0) and objective(Settings(0.1)) == CrossEntropy(0.1)
