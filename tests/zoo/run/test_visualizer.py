"""What the viewers of a run are shown."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo.run import visualizer
from zoo.run.visualizer import Visualizer
from zoo.tasks import classify


class Viewer:
    def __init__(self):
        self.shown = []

    def show(self, step, images, histograms):
        self.shown.append((step, images, histograms))


class Trainer:
    params = (SimpleNamespace(name="conv.weight"), SimpleNamespace(name="bn.running_mean"))

    def state_dict(self):
        weights = {"conv.weight": np.arange(8.0).reshape(2, 4), "bn.running_mean": np.array([1.0, np.nan])}
        return {**weights, "optimizer/momentum/conv.weight": np.ones(8), "ema/conv.weight": np.ones(8)}

    def gradients(self):
        return {"conv.weight": np.full((2, 4), np.inf), "fc.bias": np.array([0.0, 1.0, 1.0])}


class Split:
    classes, views, fields = ("cat", "dog"), 1, (SimpleNamespace(name="image", shape=(4, 4, 3)),)

    def __len__(self):
        return 3

    def sample(self, index, rng):
        return {"image": np.full((4, 4, 3), index, np.uint8), "label": np.asarray(0)}

    def name(self, index):
        return f"sample {index}"


def visualizer_of(viewers, ema=None, **train):
    config = SimpleNamespace(
        task=SimpleNamespace(task="classify"),
        seed=1,
        train=SimpleNamespace(**{"log_images": 2, "log_histograms": False, **train}),
    )
    plan, group, spec = SimpleNamespace(ema=ema), SimpleNamespace(size=1), SimpleNamespace(TASK="classify")
    job = SimpleNamespace(task=classify, val_set=Split(), plan=plan, group=group, spec=spec, trainer=Trainer())
    return Visualizer(job, config, viewers)


def evaluate(metric, right):
    """Evaluate three samples of class 0, of which `right` are right."""
    logits = np.eye(2)[np.where(np.arange(3) < right, 0, 1)]
    metric.update(logits, {"label": np.zeros(3, np.int64), "valid": np.ones(3)})
    return metric.result(metric.state)["top1"]


@pytest.mark.parametrize("ema", [None, 0.9])
def test_the_images_are_those_of_the_weights_that_count(ema):
    viewer = Viewer()
    tested = visualizer_of([viewer], ema)
    metric, averaged = tested.metrics()
    assert evaluate(metric, 0 if averaged else 3) == (0 if ema else 1) and (averaged is None) == (ema is None)
    assert averaged is None or evaluate(averaged, 3) == 1
    tested.show(7, True)
    ((step, drawn, histograms),) = viewer.shown
    assert (step, list(drawn), histograms) == (7, ["val_images/samples", "val_images/confusion"], {})
    green = (drawn["val_images/samples"] == (0, 120, 0)).all(2).any()
    assert green  # both samples are right


@pytest.mark.parametrize("viewers, count", [([], 8), ([Viewer()], 0)])
def test_nothing_is_kept_where_nothing_is_shown(viewers, count):
    tested = visualizer_of(viewers, 0.9, log_images=count)
    assert [type(metric) for metric in tested.metrics()] == [classify.Metric] * 2
    tested.show(1, True)
    assert all(viewer.shown == [(1, {}, {})] for viewer in viewers)


@pytest.mark.parametrize("trained", [True, False])
def test_histograms_on_request(trained):
    viewer = Viewer()
    visualizer_of([viewer], log_images=0, log_histograms=True).show(7, trained)
    found = viewer.shown[0][2]
    gradients = ["gradients/fc.bias"] if trained else []  # those of conv.weight are not finite
    assert list(found) == ["weights/conv.weight", "weights/bn.running_mean", *gradients]
    counts, edges = found["weights/conv.weight"]
    assert counts.sum() == 8 and (edges[0], edges[-1], len(edges)) == (0, 7, visualizer.BINS + 1)
    assert found["weights/bn.running_mean"].counts.sum() == 1


def test_histograms_of_large_tensors_count_some_elements(monkeypatch):
    monkeypatch.setattr(visualizer, "MAX_ELEMENTS", 3)
    viewer = Viewer()
    visualizer_of([viewer], log_images=0, log_histograms=True).show(7, False)
    counts, edges = viewer.shown[0][2]["weights/conv.weight"]  # 0, 3, 6
    assert counts.sum() == 3 and edges[-1] == 6
