"""Face recognition: the settings, and the verification metric against plain loops and recorded values."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.tasks import face
from zoo.tasks.face import (
    Metric,
    Settings,
    accuracy,
)
from zoo.trainer import numpy_ops


class Pairs:
    """The attributes of a validation split that the metric uses."""

    def __init__(self, *counts):
        starts = np.cumsum((0,) + counts)
        self.sets = tuple((f"set{i}", int(start), count) for i, (start, count) in enumerate(zip(starts, counts)))

    def __len__(self):
        return sum(count for _, _, count in self.sets)


def batch(labels, pairs=None, valid=None):
    labels = np.asarray(labels, np.int64)
    return {
        "label": labels,
        "index": np.arange(len(labels)) if pairs is None else np.asarray(pairs, np.int64),
        "valid": np.asarray(np.ones(len(labels)) if valid is None else valid, np.uint8),
    }


def pairs_at(distances):
    """Return unit embeddings (2 * P, 1, 2) of pairs with these squared distances."""
    angles = np.arccos(1 - np.asarray(distances, float) / 2)
    second = np.stack([np.cos(angles), np.sin(angles)], 1)
    return np.stack([np.broadcast_to([1.0, 0.0], second.shape), second], 1).reshape(-1, 1, 2).astype(np.float32)


def evaluate(embeddings, labels, dataset=None, **keys):
    metric = Metric(dataset or Pairs(len(labels)), Settings(**keys))
    metric.update(embeddings, batch(labels))
    return metric.result(metric.state)


def random_pairs(seed, count, sides=2, width=8, spread=0.8):
    """Return embeddings of pairs, close to each other for the same person, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 2)
    first, other = rng.normal(0, 1, (2, count, 1, width))
    second = np.where(labels[:, None, None] > 0, first + rng.normal(0, spread, (count, 1, width)), other)
    both = np.stack([first, second], 1) + rng.normal(0, 0.1, (count, 2, sides, width))
    return both.reshape(-1, sides, width).astype(np.float32), labels


# Reference implementation in plain loops.


def reference_distances(embeddings):
    distances = []
    for i in range(0, len(embeddings), 2):
        ends = []
        for views in embeddings[i : i + 2]:
            total = [sum(float(view[k]) for view in views) for k in range(len(views[0]))]
            length = math.sqrt(sum(value * value for value in total))
            ends.append([value / length for value in total])
        distances.append(sum((a - b) ** 2 for a, b in zip(*ends)))
    return distances


def reference_folds(count):
    sizes, start = [count // 10 + (i < count % 10) for i in range(10)], 0
    for size in sizes:
        yield list(range(start, start + size)), [i for i in range(count) if not start <= i < start + size]
        start += size


def reference_accuracy(distances, labels):
    def right(i, step):
        return (distances[i] < step / 100) == (labels[i] == 1)

    rates = []
    for test, others in reference_folds(len(labels)):
        best, most = 0, -1
        for step in range(400):
            hits = sum(right(i, step) for i in others)
            if hits > most:
                best, most = step, hits
        rates.append(sum(right(i, best) for i in test) / len(test))
    mean = sum(rates) / 10
    return mean, math.sqrt(sum((rate - mean) ** 2 for rate in rates) / 10)


def reference_tar(distances, labels, far):
    rates = []
    for test, others in reference_folds(len(labels)):
        impostors = [distances[i] for i in others if labels[i] == 0]
        before, cut = (0.0, 0.0), 0.0  # rate and threshold
        for step in range(4000):
            rate, threshold = sum(d < step / 1000 for d in impostors) / len(impostors), step / 1000
            if rate >= far:
                cut = before[1] + (far - before[0]) / (rate - before[0]) * (threshold - before[1])
                break
            before = (rate, threshold)
        genuine = [distances[i] for i in test if labels[i] == 1]
        if genuine:
            rates.append(sum(d < cut for d in genuine) / len(genuine))
    return sum(rates) / len(rates)


@given(st.integers(0, 2**32 - 1), st.integers(30, 50), st.integers(1, 2), st.sampled_from([0.3, 0.8, 1.5]))
@settings(max_examples=8)
def test_against_plain_loops(seed, count, sides, spread):
    """Numbers of pairs that are not divisible by ten are included."""
    embeddings, labels = random_pairs(seed, count, sides, spread=spread)
    result, distances = evaluate(embeddings, labels, far=0.1), reference_distances(embeddings)
    mean, std = reference_accuracy(distances, labels)
    lengths = [math.sqrt(sum(float(value) ** 2 for value in view)) for views in embeddings for view in views]
    right = [sum((d < t / 100) == bool(label) for d, label in zip(distances, labels)) for t in range(400)]
    assert result.pop("thresholds") == {"set0": right.index(max(right)) / 100}
    assert result == pytest.approx(
        {
            "accuracy": mean,
            "set0": mean,
            "set0_std": std,
            "set0_tar": reference_tar(distances, labels, 0.1),
            "xnorm": sum(lengths) / len(lengths),
            "samples": count,
        },
        abs=1e-9,
    )


# insightface at 7fadd420, recognition/arcface_torch/eval/verification.py: mean and np.std of the accuracies that
# calculate_roc(np.arange(0, 4, 0.01), ...) returns for the unit vectors below; ten contiguous folds replaced its
# KFold, which scikit-learn documents as equivalent.
UPSTREAM = [
    (600, 0.8, 0.9733333333333333, 0.013333333333333327),
    (603, 1.2, 0.9303825136612023, 0.02837555017038971),
    (6000, 1.0, 0.958, 0.008089774066341067),
    (47, 0.5, 0.9800000000000001, 0.05999999999999999),
]


def test_the_accuracy_is_that_of_insightface():
    rng = np.random.default_rng(5)
    for count, spread, mean, std in UPSTREAM:
        first = rng.normal(size=(count, 16))
        same = rng.integers(0, 2, count) > 0
        second = np.where(same[:, None], first + rng.normal(0, spread, (count, 16)), rng.normal(size=(count, 16)))
        first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
        assert accuracy(((first - second) ** 2).sum(1), same) == (
            pytest.approx(mean, abs=1e-12),
            pytest.approx(std, abs=1e-12),
        )


def test_several_sets_are_evaluated_separately():
    parts = [random_pairs(seed, count, spread=spread) for seed, count, spread in ((1, 43, 0.2), (2, 60, 1.6))]
    together = evaluate(*(np.concatenate(arrays) for arrays in zip(*parts)), Pairs(43, 60))
    alone = [evaluate(*part) for part in parts]
    for i, single in enumerate(alone):
        assert [together[f"set{i}{key}"] for key in ("", "_std", "_tar")] == [
            single[f"set0{key}"] for key in ("", "_std", "_tar")
        ]
    assert alone[0]["set0"] > alone[1]["set0"]
    assert together["accuracy"] == pytest.approx((alone[0]["accuracy"] + alone[1]["accuracy"]) / 2)
    assert together["samples"] == 103
    assert json.loads(json.dumps(together)) == together
    assert face.PRIMARY in together


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 7))
@settings(max_examples=30)
def test_any_order_and_any_split_over_ranks(seed, ranks, size):
    """Batches of any size on any rank, in any order, with padding: the state is bit-identical."""
    embeddings, labels = random_pairs(seed, 45)
    rng, dataset = np.random.default_rng(seed), Pairs(20, 25)
    labels[rng.integers(0, 45)] = -1
    whole, metrics = Metric(dataset), [Metric(dataset) for _ in range(ranks)]
    whole.update(embeddings, batch(labels))
    order, rows = rng.permutation(45), embeddings.reshape(45, 2, 2, -1)
    for start in range(0, 45, size):
        chosen = order[start : start + size]
        padded = np.concatenate([chosen, chosen[:1]])
        metrics[rng.integers(ranks)].update(
            rows[padded].reshape(-1, 2, 8), batch(labels[padded], padded, [1] * len(chosen) + [0])
        )
    summed = {name: sum(metric.state[name] for metric in metrics) for name in whole.state}
    assert all(np.array_equal(summed[name], whole.state[name]) for name in whole.state)
    assert whole.result(summed) == whole.result(whole.state)
    assert sum(array.nbytes for array in whole.state.values()) <= 45 * 4 * 8 + 8


def test_the_threshold_is_interpolated():
    """A quarter of the distances is 1: the rate rises from 0 to 1/4 between 1 and 1.001 and is 1/10 at 1.0004."""
    impostors = np.array([1.0, 2, 2, 2] * 25)
    assert face._far_threshold(impostors, 0.1) == pytest.approx(1.0004, abs=1e-12)
    assert face._far_threshold(impostors, 0.25) == pytest.approx(1.001)  # where a plateau begins
    assert face._far_threshold(impostors, 0.26) == pytest.approx(2.0 + 0.001 * 0.01 / 0.75)
    assert face._far_threshold(np.full(7, 3.9995), 0.1) == 0 == face._far_threshold(np.array([]), 0.1)  # never reached


def test_an_unreadable_pair_is_wrong_and_leaves_the_state_alone():
    embeddings, labels = pairs_at(np.tile([0.5, 1.5], 10)), np.tile([1, 0], 10)
    labels[4] = -1
    dataset, metric = Pairs(20), Metric(Pairs(20))
    metric.update(embeddings, {**batch(labels), "index": np.where(labels < 0, 0, np.arange(20))})
    result = metric.result(metric.state)
    assert (result["accuracy"], result["samples"], result["set0_tar"]) == (pytest.approx(0.95), 20, 1.0)
    assert metric.state["seen"].tolist() == [1] * 4 + [0] + [1] * 15
    labels[5] = -1  # a pair with the other label is wrong as well
    assert evaluate(embeddings, labels, dataset)["accuracy"] == pytest.approx(0.9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("pair", [4, 5])
def test_an_embedding_without_a_direction_is_wrong(value, pair):
    embeddings, labels = pairs_at(np.tile([0.5, 1.5], 10)), np.tile([1, 0], 10)
    embeddings[2 * pair + 1] = value
    result = evaluate(embeddings, labels, far=0.2)
    assert result["accuracy"] == pytest.approx(0.95)
    assert result["set0_tar"] == (0.9 if pair == 4 else 1.0)
    assert evaluate(np.full_like(embeddings, value), labels)["accuracy"] == 0
    assert evaluate(np.full_like(embeddings, value), labels)["set0_tar"] == 0


@pytest.mark.parametrize(
    "options, key",
    [
        ({"scale": 0.0}, "scale"),
        ({"m1": 0.9, "threshold": False}, "m1"),
        ({"m2": math.pi}, "m2"),
        ({"m1": 1.35}, "threshold"),
        ({"interclass": 1.0}, "interclass"),
        ({"sample_rate": 1.1}, "sample_rate"),
        ({"far": 0.0}, "far"),
    ],
)
def test_invalid_settings(options, key):
    with pytest.raises(ValueError, match=f"^{key}:"):
        Settings(**options)


def test_the_threshold_rule_of_arcface():
    """Published values for a margin of 0.5; with them the target logit decreases with the angle."""
    loss, angles = Settings(), np.linspace(0, math.pi, 1001)
    assert loss.threshold_cosine == pytest.approx(-0.87758, abs=1e-5)
    assert loss.threshold_offset == pytest.approx(0.23971, abs=1e-5)
    logits, _ = loss.margin(numpy_ops, np.cos(angles), None)
    assert (np.diff(logits) < 0).all() and (np.diff(np.cos(angles + 0.5)) > 0).any()
