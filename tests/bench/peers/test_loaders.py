"""All loaders read the same samples, and what is missing is named."""

import itertools

import numpy as np
import pytest

from tests.data.loaders import sets
from zoo.bench.peers import loaders, upstream
from zoo.bench.peers.loaders import MapStyle
from zoo.data import order
from zoo.data.errors import UserError


class Squares:
    def __init__(self, log=None):
        self.log = log

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if self.log is not None:
            self.log.append(index)
        return index * index


def expected(start, count, size=5):
    return [order.locate(0, size, position)[1] for position in range(start, start + count)]


def test_all_read_the_samples_of_a_run(tmp_path, monkeypatch):
    log = []
    loaders.map_style("files", "name", MapStyle(Squares(log), list), batch=3).read(4)
    assert log == expected(12, 3)
    train, _ = sets.face_set(tmp_path)
    read = []
    monkeypatch.setattr(train, "sample", lambda index, rng: read.append(index) or {"image": np.zeros((2, 2, 3))})
    loaders.ours("faces", train, batch=4).read(2)
    assert read == expected(8, 4, len(train))


def test_processes_read_without_end(tmp_path):
    pytest.importorskip("torch")
    stream = loaders.map_style("files", "name", MapStyle(Squares(), list), batch=3).stream()
    batches = list(itertools.islice(stream, 4))
    stream.close()
    assert batches == [[index * index for index in expected(3 * number, 3)] for number in range(4)]
    train, _ = sets.face_set(tmp_path)
    task = loaders.Task(4, (1, 1))
    task.add_own("faces", lambda settings: (train, None), None, dali=False)
    stream = task.loaders[1].stream()
    batch = next(stream)
    stream.close()
    assert task.loaders[1].name == "bare loop" and tuple(batch.shape) == (4, *train.fields[0].shape)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent: no such folder; docs/performance.md"):
        upstream.load(str(tmp_path / "absent"), "json")
    with pytest.raises(UserError, match=r"no_such_package: No module named 'no_such_package'; docs/performance.md"):
        upstream.installed("no_such_package")
