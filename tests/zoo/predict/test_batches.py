"""Batches of sources: their order, shapes and sizes, and what becomes of sources that cannot be read."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data.errors import BadSample, UserError
from zoo.predict import batches, classify
from zoo.predict.batches import AUTO_PIXELS, Options
from zoo.predict.results import Request, Sample

SHAPE = (2, 4, 3)


def read(settings, seed, source, index):
    """Return a sample of so many columns as the source has letters."""
    assert (settings, seed) == ("settings", 5)
    if source == "bad":
        raise BadSample("unreadable")
    if source == "exit":
        os._exit(3)
    return Sample({"image": np.full((1, 2, len(source), 3), index, np.uint8)})


def result(model, source, sample, output):
    assert output.tolist() == [sample.batch["image"].max()]
    if source == "odd":
        raise BadSample("not finite")
    return source


class Model:
    """A model that gives the first value of its input; one batch has one shape."""

    def __init__(self):
        self.cfg, self.trainer = SimpleNamespace(data="settings", seed=5), self
        self.sizes = []

    def to_device(self, batch):
        return batch

    def predict(self, batch, size):
        self.sizes.append(len(batch["image"]))
        return batch["image"][:, 0, 0, 0]


def predict(sources, *arguments):
    """Return the results, and the numbers of samples in the batches."""
    predictor = SimpleNamespace(fields=lambda settings: [SimpleNamespace(shape=SHAPE)], read=read, result=result)
    model = Model()
    return [str(each) for each in batches.predict(predictor, model, sources, *arguments)], model.sizes


@pytest.mark.parametrize("workers", [0, 2])
def test_results_have_the_order_of_the_sources(workers):
    sources = ["a", "a", "bad", "a", BadSample("lost"), "bb", "bb", "odd", "a", "a", "a"]
    expected = [{"bad": "unreadable", "odd": "not finite"}.get(str(source), str(source)) for source in sources]
    assert predict(sources, Options(4, workers)) == (expected, [3, 2, 1, 3])
    assert predict(sources, Options(4, workers), None, 6)[0] == expected[6:]
    assert predict([], Options(4, workers)) == ([], [])


def test_batches_of_auto_are_small_enough():
    columns = AUTO_PIXELS // 2 // 5  # five of them are a batch
    results, sizes = predict(["x" * columns] * 12, Options())
    assert len(results) == 12 and sizes == [5, 5, 2]
    assert predict(["x" * AUTO_PIXELS] * 2, Options())[1] == [1, 1]  # larger than a batch
    assert predict(["x"] * 130, Options())[1] == [64, 64, 2]


def test_a_reading_process_that_dies():
    with pytest.raises(UserError, match="a reading process exited with code 3.*; try --workers 0"):
        predict(["a", "exit"], Options(1, 1))


@pytest.mark.parametrize("batch, workers, name", [(0, 0, "batch"), ("many", 0, "batch"), (1, -1, "workers")])
def test_impossible_options(batch, workers, name):
    with pytest.raises(UserError, match=f"--{name}: expected"):
        Options.parse(batch, workers, "--")


def test_names_that_two_classes_share():
    """Such as the two cranes of ImageNet: each has its own probability."""
    model = SimpleNamespace(class_names=("crane", "owl", "crane"))
    logits = np.log([[0.5, 0.2, 0.3]])
    line, row = classify.describe(model, "a", Sample({}), logits, Request(3), "")
    assert (
        line == "crane 0.500, crane 0.300, owl 0.200" and [each["label"] for each in row["predictions"]][1] == "crane"
    )
