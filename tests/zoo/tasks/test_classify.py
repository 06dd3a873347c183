"""Classification: the metric against plain loops in float64, and the objective."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.tasks.classify import Metric

LOGITS = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])  # few values: many ties


def batch(labels, valid=None):
    labels = np.asarray(labels, np.int64)
    return {"label": labels, "valid": np.asarray(np.ones(len(labels)) if valid is None else valid, np.uint8)}


def metric_of(classes, views=1):
    return Metric(SimpleNamespace(views=views, classes=[f"c{number}" for number in range(classes)]))


def evaluate(scores, labels, valid=None, views=1):
    metric = metric_of(len(scores[0]), views)
    metric.update(np.asarray(scores, np.float32), batch(labels, valid))
    return metric.result(metric.state)


def is_top(row, label, k):
    """Return whether fewer than k other classes score as high as the label; a tie counts against it."""
    return (
        label >= 0
        and not math.isnan(row[label])
        and sum(not row[other] < row[label] for other in range(len(row)) if other != label) < k
    )


def reference_result(scores, labels, valid=None, views=1):
    rows = []
    for i in range(len(labels)):
        mean = [sum(float(scores[i * views + view][k]) for view in range(views)) / views for k in range(len(scores[0]))]
        if valid is None or valid[i]:
            rows.append((mean, labels[i]))
    losses = [math.log(sum(math.exp(value - row[label]) for value in row)) for row, label in rows if label >= 0]
    by_class = {label: [is_top(row, label, 1) for row, other in rows if other == label] for _, label in rows}
    return {
        "top1": sum(is_top(row, label, 1) for row, label in rows) / len(rows),
        "top5": sum(is_top(row, label, 5) for row, label in rows) / len(rows),
        "loss": sum(losses) / max(len(losses), 1),
        "samples": len(rows),
        "class_accuracy": {f"c{c}": sum(right) / len(right) for c, right in sorted(by_class.items()) if c >= 0},
    }


@st.composite
def cases(draw):
    classes, samples, views = draw(st.integers(1, 9)), draw(st.integers(1, 7)), draw(st.integers(1, 3))
    scores = draw(
        st.lists(
            st.lists(LOGITS, min_size=classes, max_size=classes), min_size=samples * views, max_size=samples * views
        )
    )
    labels = draw(st.lists(st.integers(-1, classes - 1), min_size=samples, max_size=samples))
    valid = draw(st.lists(st.integers(0, 1), min_size=samples, max_size=samples).filter(any))
    return scores, labels, valid, views


@given(cases())
@settings(max_examples=200)
def test_against_plain_loops(case):
    result, expected = evaluate(*case), reference_result(*case)
    assert result.pop("class_accuracy") == expected.pop("class_accuracy")
    assert result == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(cases(), st.data())
@settings(max_examples=100)
def test_the_state_adds_up_over_any_split(case, data):
    """Over batches of one rank, and over ranks."""
    scores, labels, valid, views = case
    cut = data.draw(st.integers(0, len(labels)))
    whole, combined, first, second = (metric_of(len(scores[0]), views) for _ in range(4))
    scores = np.asarray(scores, np.float32)
    whole.update(scores, batch(labels, valid))
    for part, metric in ((slice(0, cut), first), (slice(cut, None), second)):
        if len(labels[part]):
            rows = scores[(part.start or 0) * views : (len(labels) if part.stop is None else part.stop) * views]
            combined.update(rows, batch(labels[part], valid[part]))
            metric.update(rows, batch(labels[part], valid[part]))
    summed = {name: first.state[name] + second.state[name] for name in first.state}
    for state in (combined.state, summed):
        result, expected = whole.result(state), whole.result(whole.state)
        assert result.pop("class_accuracy") == expected.pop("class_accuracy")
        assert result == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert all(array.dtype == np.float64 and array.shape == () for array in list(whole.state.values())[:-1])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_the_confusion_matrix():
    metric = metric_of(3)
    scores = np.zeros((8, 5)) + [1, 2, 3, 0, 0]  # an answer of class 2
    scores[1] = [3, 3, 0, 0, 0]  # a tie with the label
    scores[2] = [0, 0, 0, 9, 0]  # a class that the data does not have
    scores[3] = [0, np.nan, 0, 1, 0]
    scores[4] = [3, 3, 0, 0, 0]  # a tie of two other classes: the first of them is the answer
    metric.update(scores, batch([2, 0, 1, 1, 2, -1, 0, 2], [1] * 7 + [0]))
    assert metric.state["confusion"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 2], [1, 0, 1, 0]]
    metric.update(scores[:1], batch([2]))
    assert metric.state["confusion"][2].tolist() == [1, 0, 2, 0]
    result = metric.result(metric.state)
    assert result["class_accuracy"] == {"c0": 0, "c1": 0, "c2": 2 / 3} and result["top1"] == 2 / 8


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_single_nan():
    row = [3.0, np.nan, 1.0, 0.0, -1.0, -2.0, -3.0]
    assert evaluate([row], [1])["top5"] == 0
    assert evaluate([row], [0])["top1"] == 0  # the NaN counts as larger
    assert evaluate([row], [0])["top5"] == 1
    assert evaluate([row, [1.0] + [0.0] * 6], [1, 0])["top1"] == 0.5  # and the next sample is not affected
    assert evaluate([[5.0, 0.0], [np.nan, 0.0]], [0], views=2)["top1"] == 0


def test_an_unreadable_sample_is_counted_and_never_correct():
    result = evaluate([[1.0, 0.0], [1.0, 0.0]], [0, -1])
    assert (result["top1"], result["top5"], result["samples"]) == (0.5, 0.5, 2)
    assert result["loss"] == pytest.approx(math.log(1 + math.exp(-1)))  # of the readable one alone
    assert evaluate([[0.0, 1.0]], [-1]) == {"top1": 0, "top5": 0, "loss": 0, "samples": 1, "class_accuracy": {}}


def test_a_correct_a_top_five_and_a_wrong_prediction():
    scores = np.zeros((3, 10)) + np.arange(10)[::-1]  # class 0 is best
    result = evaluate(scores, [0, 4, 5])
    assert (result["top1"], result["top5"], result["samples"]) == (1 / 3, 2 / 3, 3)
