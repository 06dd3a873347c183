"""Several classes per image: the metric against values of scikit-learn, its state, and its thresholds."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from zoo.tasks import multilabel


class Split(SimpleNamespace):
    def __len__(self):
        return self.rows


def metric_of(rows, classes, views=1):
    names = [f"c{number}" for number in range(classes)]
    return multilabel.Metric(Split(rows=rows, views=views, classes=names))


def batch(targets, index, valid=None):
    valid = np.ones(len(index), np.uint8) if valid is None else np.asarray(valid, np.uint8)
    return {"label": np.asarray(targets, np.float32), "index": np.asarray(index), "valid": valid}


def evaluate(scores, targets):
    metric = metric_of(*np.shape(scores))
    metric.update(np.asarray(scores), batch(targets, range(len(scores))))
    return metric.result(metric.state)


def golden():
    """Scores, half of them with ties, 0/1 targets, and mean average precision, F1 above 0, and best F1."""
    with np.load(GOLDEN / "multilabel.npz") as file:
        count = len(file.files) // 3
        return [tuple(file[f"{n}/{name}"] for name in ("scores", "targets", "expected")) for n in range(count)]


def test_against_scikit_learn():
    for scores, targets, expected in golden():
        found = evaluate(scores, targets)
        np.testing.assert_allclose([found[name] for name in ("map", "f1", "f1_best")], expected, rtol=0, atol=1e-12)


def test_the_thresholds_give_the_best_f1():
    for scores, targets, expected in golden():
        limits = evaluate(scores, targets)["thresholds"]
        probabilities = 1 / (1 + np.exp(-scores.astype(np.float64)))
        values = [
            multilabel.f1(probabilities[:, int(name[1:])] > limit, targets[:, int(name[1:])] > 0)
            for name, limit in limits.items()
        ]
        assert np.mean(values) == pytest.approx(expected[2], abs=1e-12)


def test_an_unreadable_sample_is_below_all_others():
    split = Split(rows=3, views=1, classes=["a"], target=lambda row: np.array([1]))
    metric = multilabel.Metric(split)
    metric.update(np.array([[-3.0], [-2.0], [np.nan]]), batch([[1], [0], [-1]], range(3)))
    assert metric.result(metric.state)["map"] == pytest.approx(0.5 * 1 / 2 + 0.5 * 2 / 3)


def test_views_ranks_padding_and_unreadable_samples():
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(7, 2, 3)).astype(np.float32), rng.integers(0, 2, (7, 3))
    whole, parts = metric_of(8, 3, views=2), [metric_of(8, 3, views=2) for _ in range(2)]
    whole.update(scores.reshape(-1, 3), batch(targets, range(7)))
    for metric, rows in zip(parts, ([6, 0, 3, 3], [1, 5, 2, 4])):
        valid = [1, 1, 1, 0] if metric is parts[0] else [1] * 4
        metric.update(scores[rows].reshape(-1, 3), batch(targets[rows], rows, valid))
    parts[0].update(np.full((2, 3), np.nan, np.float32), batch([[-1, -1, -1]], [7]))  # unreadable
    found = parts[0].result({name: sum(part.state[name] for part in parts) for name in whole.state})
    assert found.pop("samples") == 8
    expected = whole.result(whole.state)
    assert expected.pop("samples") == 7
    assert found.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-12) and found == expected
    means = scores.astype(np.float64).mean(1)
    losses = np.log1p(np.exp(-means)) * targets + np.log1p(np.exp(means)) * (1 - targets)
    assert whole.result(whole.state)["loss"] == pytest.approx(losses.mean(), rel=1e-12)


def test_classes_that_no_sample_has_are_left_out_and_a_score_that_is_no_number_comes_last():
    found = evaluate([[1.0, 5.0], [np.nan, 6.0], [0.0, 7.0]], [[1, 0], [1, 0], [0, 0]])
    assert found["class_ap"] == {"c0": pytest.approx((1 + 2 / 3) / 2)} and np.isnan(found["loss"])
    for scores in (np.full((4, 1), np.nan), np.full((4, 1), np.inf)):  # in any order
        same = [evaluate(scores, targets)["class_ap"]["c0"] for targets in ([[1], [1], [0], [0]], [[0], [0], [1], [1]])]
        assert same == [0.5, 0.5]
    nothing = evaluate([[1.0]], [[0]])
    assert nothing["map"] == nothing["f1"] == nothing["f1_best"] == 0 and nothing["thresholds"] == {}
