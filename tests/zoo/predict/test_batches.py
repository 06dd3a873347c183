"""Batches of sources: their order, shapes and sizes, and what becomes of sources that cannot be read."""

import numpy as np
import pytest

from zoo.data.errors import BadSample, UserError
from zoo.predict.batches import AUTO_PIXELS, Options, outcomes
from zoo.predict.results import Sample

SHAPE = (2, 4, 3)


def read(source, index):
    """Return a sample of so many columns as the source has letters."""
    if source == "bad":
        raise BadSample("unreadable")
    if source == "exit":
        raise SystemExit(3)
    return Sample({"image": np.full((1, 2, len(source), 3), index, np.uint8)})


def predict(sources, *arguments):
    """Return the results, the numbers of samples in the batches, and checks that a batch has one shape."""
    sizes = []

    def forward(samples):
        sizes.append(len(samples))
        return [int(row[0, 0, 0]) for row in np.concatenate([sample.batch["image"] for sample in samples])]

    def finish(index, sample, output):
        assert output == index == sample.batch["image"].max()
        if sources[index] == "odd":
            raise BadSample("not finite")
        return sources[index]

    results = outcomes(read, forward, finish, sources, SHAPE, *arguments)
    return [str(result) for result in results], sizes


@pytest.mark.parametrize("workers", [0, 2])
def test_results_have_the_order_of_the_sources(workers):
    sources = ["a", "a", "bad", "a", BadSample("lost"), "bb", "bb", "odd", "a", "a", "a"]
    expected = [{"bad": "unreadable", "odd": "not finite"}.get(str(source), str(source)) for source in sources]
    assert predict(sources, Options(4, workers)) == (expected, [3, 2, 1, 3])
    assert predict(sources, Options(4, workers), 6)[0] == expected[6:]
    assert predict([], Options(4, workers)) == ([], [])


def test_batches_of_auto_are_small_enough():
    columns = AUTO_PIXELS // 2 // 5  # five of them are a batch
    results, sizes = predict(["x" * columns] * 12, Options())
    assert len(results) == 12 and sizes == [5, 5, 2]
    assert predict(["x" * AUTO_PIXELS] * 2, Options())[1] == [1, 1]  # larger than a batch
    assert predict(["x"] * 130, Options())[1] == [64, 64, 2]


def test_a_reading_process_that_dies():
    with pytest.raises(UserError, match="a reading process exited with code .*; try --workers 0"):
        predict(["a", "exit"], Options(1, 1))


@pytest.mark.parametrize("batch, workers, name", [(0, 0, "batch"), ("many", 0, "batch"), (1, -1, "workers")])
def test_impossible_options(batch, workers, name):
    with pytest.raises(UserError, match=f"--{name}: expected"):
        Options.parse(batch, workers, "--")
