"""Evaluation of a stream, with a model that returns its input."""

import math
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data.batch import LABEL, Field
from zoo.data.errors import UnreadableData
from zoo.data.stream import UnreadableSample
from zoo.distributed.group import Polling
from zoo.run import evaluation
from zoo.run.evaluation import Evaluations, evaluate
from zoo.run.pipeline import JOIN_TIMEOUT
from zoo.run.stopping import EvaluationStopped, StopSignal

BAD = UnreadableSample(0, "a.jpg", "the file is empty", None)


class Stream:
    """Batches of two samples with one view each or two; the second batch has an unreadable sample."""

    def __init__(self, views=1):
        self.number, self.views, self.closed = 0, views, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.number == 3:
            raise StopIteration
        self.number += 1
        shape = (2, self.views, 1) if self.views > 1 else (2, 1)
        batch = {"image": np.full(shape, self.number), "label": np.zeros(2), "valid": np.ones(2)}
        return batch, [BAD] if self.number == 2 else []

    def close(self):
        self.closed += 1


class Trainer:
    def to_device(self, batch, images):
        assert list(batch) == ["image"] and not images
        return batch

    def predict(self, device_batch, size, averaged=False):
        assert size is None
        return -device_batch["image"] if averaged else device_batch["image"]


class Metric:
    def __init__(self):
        self.seen = []
        self.state = {"samples": 0}

    def update(self, predictions, batch):
        assert batch["label"].shape == (2,)
        self.seen.append(predictions.tolist())
        self.state["samples"] += 2

    def result(self, state):
        return {"seen": self.seen, **state}


class Group:
    """Rank 0 of two, the other of which reports the same."""

    rank, size = 0, 2

    def set_status(self, status):
        pass

    def concatenate(self, items):
        return items + items[1:]  # the first is rank 0's alone

    def all_gather(self, value):
        return [value, value]  # of two ranks

    def sum(self, state):
        return {name: 2 * value for name, value in state.items()}


def run(stream, eval_bad, reported, metric=None, **options):
    fields = (Field("image", (1,), "uint8", (0.5,), (0.5,)), LABEL)
    dataset = SimpleNamespace(fields=fields, views=stream.views, settings=SimpleNamespace(eval_bad=eval_bad))
    return evaluate(Trainer(), stream, dataset, metric or Metric(), Group(), reported.append, **options)


@pytest.mark.parametrize("views", [1, 2])
def test_every_batch_counts_once_and_views_are_rows(views):
    stream, reported = Stream(views), []
    result = run(stream, "wrong", reported)
    assert result == {"seen": [[[number]] * 2 * views for number in (1, 2, 3)], "samples": 12, "bad": 2}
    assert reported == [BAD, BAD] and stream.closed == 1


def test_an_unreadable_sample_ends_the_evaluation_and_its_stream():
    stream, reported, metric = Stream(), [], Metric()
    with pytest.raises(UnreadableData, match=r"evaluation: a.jpg: the file is empty .*data.eval_bad=wrong") as error:
        run(stream, "error", reported, metric)
    assert error.value.unreadable == {"a.jpg": "the file is empty"}
    assert stream.closed == 1 and reported == [] and len(metric.seen) == 2


def test_an_unreadable_sample_of_another_rank_ends_the_evaluation_here(monkeypatch):
    """Also where the ranks exchange after the last batch alone."""
    theirs = [1, {"signal": 15}, {"sample": vars(BAD)}]
    for due in (True, False):
        monkeypatch.setattr(Polling, "is_due", lambda self, number, due=due: due)
        monkeypatch.setattr(Group, "concatenate", lambda self, items: theirs)
        metric = Metric()
        with pytest.raises(UnreadableData, match="a.jpg"):
            run(Stream(), "error", [], metric)
        assert len(metric.seen) == (1 if due else 3)


def test_the_moving_average_predicts_the_same_batches():
    result = run(Stream(), "wrong", [], averaged=Metric())
    assert result["bad"] == 2 and "bad" not in result["ema"]
    assert result["samples"] == result["ema"]["samples"] == 12  # of both ranks
    assert result["seen"] == [[[number]] * 2 for number in (1, 2, 3)]
    assert result["ema"]["seen"] == [[[-number]] * 2 for number in (1, 2, 3)]


def test_predictions_have_the_size_of_labels_per_pixel(monkeypatch):
    """Those of the moving average, too."""
    sizes = []

    class Maps(Stream):
        def __next__(self):
            batch, unreadable = super().__next__()
            return {**batch, "label": np.zeros((2, 4, 5))}, unreadable

    def predict(trainer, device_batch, size, averaged=False):
        sizes.append((size, averaged))

    monkeypatch.setattr(Trainer, "predict", predict)
    monkeypatch.setattr(Metric, "update", lambda *_: None)
    run(Maps(), "wrong", [], averaged=Metric())
    assert sizes == [((4, 5), False), ((4, 5), True)] * 3


@pytest.mark.parametrize(
    "found, accuracy",
    [
        ({"top1": 0.1, "loss": 2.0}, 0.1),
        ({"top1": 0.1, "loss": math.nan}, math.nan),
        ({"top1": 0.1, "loss": math.inf}, math.nan),
        ({"top1": 0.1}, 0.1),
        ({"top1": 0.1, "loss": math.nan, "ema": {"top1": 0.2, "loss": 1.0}}, 0.2),
        ({"top1": 0.1, "loss": 2.0, "ema": {"top1": 0.2, "loss": math.inf}}, math.nan),
    ],
)
def test_the_accuracy_is_that_of_the_average_and_nan_where_the_loss_is_not_finite(found, accuracy):
    job = SimpleNamespace(val_set=None, task=SimpleNamespace(PRIMARY="top1"))
    evaluations = SimpleNamespace(_val=None, _job=job, _subset=None, _evaluate=lambda *_: found)
    assert Evaluations.measure(evaluations, (None, None), None)["accuracy"] == pytest.approx(accuracy, nan_ok=True)


def test_a_signal_ends_it_after_the_batch_and_no_metric_is_returned():
    stream, stop, reported = Stream(), StopSignal(), []

    class Receives(Metric):
        def update(self, predictions, batch):
            super().update(predictions, batch)
            stop.received = signal.SIGTERM

    metric = Receives()
    with pytest.raises(EvaluationStopped) as stopped:
        run(stream, "wrong", reported, stop=stop, metric=metric)
    assert stopped.value.number == signal.SIGTERM
    assert len(metric.seen) == 1 and stream.closed == 1 and reported == []


def test_a_signal_does_not_wait_for_a_batch_that_does_not_come(monkeypatch):
    monkeypatch.setattr(evaluation, "STOP_TIMEOUT", 0.01)
    come, stop = threading.Event(), StopSignal()

    class Slow(Stream):
        def __next__(self):
            stop.received = signal.SIGHUP
            come.wait(60)
            return super().__next__()

    metric, began = Metric(), time.monotonic()
    try:
        with pytest.raises(EvaluationStopped):
            run(Slow(), "error", [], metric, stop=stop)
        assert time.monotonic() - began < JOIN_TIMEOUT / 2  # it is not closed again, with the usual timeout
        assert metric.seen == [] and not come.is_set()
    finally:
        come.set()
