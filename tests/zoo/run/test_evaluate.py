"""Evaluation of a stream, with a model that returns its input."""

import signal
from types import SimpleNamespace

import numpy as np
import pytest

from data.batch import LABEL, Field
from data.errors import UserError
from data.stream import UnreadableSample
from zoo.run.evaluate import evaluate
from zoo.run.signals import EvaluationStopped, StopSignal

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
        self.state = {}

    def update(self, predictions, batch):
        assert batch["label"].shape == (2,)
        self.seen.append(predictions.tolist())

    def result(self, state):
        return {"seen": self.seen}


class Group:
    def set_status(self, status):
        pass

    def all_gather(self, value):
        return [value, value]  # of two ranks

    def sum(self, state):
        return state


def run(stream, eval_bad, reported, metric=None, **options):
    fields = (Field("image", (1,), "uint8", (0.5,), (0.5,)), LABEL)
    dataset = SimpleNamespace(fields=fields, views=stream.views, settings=SimpleNamespace(eval_bad=eval_bad))
    return evaluate(Trainer(), stream, dataset, metric or Metric(), Group(), reported.append, **options)


@pytest.mark.parametrize("views", [1, 2])
def test_every_batch_counts_once_and_views_are_rows(views):
    stream, reported = Stream(views), []
    result = run(stream, "wrong", reported)
    assert result == {"seen": [[[number]] * 2 * views for number in (1, 2, 3)], "bad": 2}
    assert reported == [BAD, BAD] and stream.closed == 1


def test_an_unreadable_sample_ends_the_evaluation_and_its_stream():
    stream, reported = Stream(), []
    with pytest.raises(UserError, match="evaluation: a.jpg: the file is empty; .*data.eval_bad=wrong"):
        run(stream, "error", reported)
    assert stream.closed == 1 and reported == []


def test_the_moving_average_predicts_the_same_batches():
    result = run(Stream(), "wrong", [], averaged=Metric())
    assert result["bad"] == 2 and "bad" not in result["ema"]
    assert result["seen"] == [[[number]] * 2 for number in (1, 2, 3)]
    assert result["ema"]["seen"] == [[[-number]] * 2 for number in (1, 2, 3)]


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
