"""Segmentation: sliding windows, the confusion matrix and the metrics derived from it."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zoo.data.errors import UserError
from zoo.data.formats.masks import LABELS, TRAIN_CLASSES
from zoo.tasks.segment import ClassMap, Metric, Settings, windows


def evaluate(predicted, labels, classes=("a", "b", "c"), valid=None):
    metric = Metric(SimpleNamespace(classes=tuple(classes)))
    predicted, labels = np.asarray(predicted, np.uint8), np.asarray(labels, np.uint8)
    metric.update(predicted, {"label": labels, "valid": np.ones(len(labels)) if valid is None else np.asarray(valid)})
    return metric.result(metric.state)


def test_an_example_by_hand():
    """a: 2 of 3 found, 1 false positive; b: 1 of 2 found, 1 false positive; c: absent; one ignored pixel."""
    result = evaluate([[[0, 0, 1], [1, 0, 2]]], [[[0, 0, 0], [1, 1, 255]]])
    assert result == {
        "miou": (2 / 4 + 1 / 3) / 2,
        "macc": (2 / 3 + 1 / 2) / 2,
        "aacc": 3 / 5,
        "samples": 1,
        "iou": {"a": 2 / 4, "b": 1 / 3},
    }


def test_a_prediction_of_a_class_that_the_data_do_not_have_is_wrong():
    result = evaluate([[[0, 7, 2]]], [[[0, 2, 2]]])
    assert result["iou"] == {"a": 1.0, "c": 0.5} and result["aacc"] == 2 / 3


def test_labels_that_are_all_ignored_are_an_error():
    with pytest.raises(UserError, match="no labelled pixel"):
        evaluate([[[0]]], [[[255]]])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
@settings(max_examples=50)
def test_the_state_adds_up_over_any_split(seed, cut):
    rng = np.random.default_rng(seed)
    labels = rng.choice([0, 1, 2, 255], (5, 4, 6)).astype(np.uint8)
    predicted, dataset = rng.integers(0, 3, (5, 4, 6), np.uint8), SimpleNamespace(classes=("a", "b", "c"))
    whole, first, second = (Metric(dataset) for _ in range(3))
    for metric, part in ((whole, slice(None)), (first, slice(cut)), (second, slice(cut, None))):
        metric.update(predicted[part], {"label": labels[part], "valid": np.ones(len(labels[part]))})
    assert all(np.array_equal(first.state[name] + second.state[name], whole.state[name]) for name in whole.state)
    assert whole.state["confusion"].sum() == (labels != 255).sum()
    assert sum(array.nbytes for array in whole.state.values()) < 200  # whatever the number of images


def test_the_mean_iou_is_that_of_cityscapes_own_script(tmp_path, monkeypatch):
    """cityscapesscripts on label files, ours on the same maps: equal to the last bit, absent classes and ignored
    pixels included."""
    monkeypatch.setenv("CITYSCAPES_DATASET", str(tmp_path))
    script = importlib.import_module("cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling")
    to_train = np.full(256, 255, np.uint8)
    for label in LABELS:
        if label.train_id is not None and label.id >= 0:
            to_train[label.id] = label.train_id
    to_id = np.array([next(label.id for label in LABELS if label.train_id == i) for i in range(19)], np.uint8)
    rng, metric = np.random.default_rng(3), Metric(SimpleNamespace(classes=TRAIN_CLASSES))
    script.args.evalInstLevelScore = False
    confusion = script.generateMatrix(script.args)
    present = np.array([0, 1, 2, 4, 7, 8, 11, 17, 23, 24, 26, 33], np.uint8)  # ids: some are ignored, some absent
    for number in range(4):
        truth = rng.choice(present, (32, 48))
        noisy = np.where(rng.random((32, 48)) < 0.6, to_train[truth], rng.integers(0, 12, (32, 48)))
        predicted = np.where(noisy == 255, 0, noisy).astype(np.uint8)
        paths = [str(tmp_path / f"{kind}{number}.png") for kind in ("predicted", "truth")]
        for path, ids in zip(paths, (to_id[predicted], truth)):
            Image.fromarray(ids).save(path)
        script.evaluatePair(*paths, confusion, {}, {}, script.args)
        metric.update(predicted[None], {"label": to_train[truth][None], "valid": np.ones(1)})
    scores = {
        label: script.getIouScoreForLabel(script.name2label[label].id, confusion, script.args)
        for label in TRAIN_CLASSES
    }
    result = metric.result(metric.state)
    assert result["iou"] == {name: value for name, value in scores.items() if value == value}
    assert result["miou"] == pytest.approx(script.getScoreAverage(scores, script.args), rel=1e-14)
    assert 0.2 < result["miou"] < 0.9 and 8 < len(result["iou"]) < 19


def test_windows_of_the_769_recipe():
    """Two rows and four columns over 1025 x 2049, the last ones shifted back inside."""
    spans = windows((1025, 2049), ClassMap((769, 769), (513, 513)))
    assert [(top, left) for top, _, left, _ in spans] == [
        (top, left) for top in (0, 256) for left in (0, 513, 1026, 1280)
    ]
    assert all((bottom - top, right - left) == (769, 769) for top, bottom, left, right in spans)
    assert windows((1025, 2049), ClassMap((769, 769))) == spans  # two thirds, rounded up


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.integers(1, 40))
def test_windows_cover_every_pixel_and_stay_inside(height, width, window, stride):
    spans = windows((height, width), ClassMap((window, window), (min(stride, window),) * 2))
    seen = np.zeros((height, width), int)
    for top, bottom, left, right in spans:
        assert 0 <= top < bottom <= height and 0 <= left < right <= width
        assert (bottom - top, right - left) == (min(window, height), min(window, width))
        seen[top:bottom, left:right] += 1
    assert seen.min() >= 1 and len(set(spans)) == len(spans)


@pytest.mark.parametrize(
    "options, key",
    [
        ({"aux_weight": -1}, "aux_weight"),
        ({"ohem_kept": 0}, "ohem_kept"),
        ({"ohem_threshold": 0.7}, "ohem_threshold"),
        ({"ohem_kept": 5, "ohem_threshold": 1.5}, "ohem_threshold"),
        ({"window": (0, 5)}, "window"),
        ({"stride": (5, 5)}, "stride"),
        ({"window": (5, 5), "stride": (6, 5)}, "stride"),
    ],
)
def test_invalid_settings(options, key):
    with pytest.raises(ValueError, match=f"^{key}:"):
        Settings(**options)
