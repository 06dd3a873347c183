"""All loaders read the same samples, in this thread and by processes."""

import itertools

import numpy as np
import pytest

from tests.data.loaders import sets
from zoo.bench.peers import contender
from zoo.bench.peers.contender import MapStyle
from zoo.data import loaders, order
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


def expected(start, count):
    return [order.locate(0, 5, position)[1] for position in range(start, start + count)]


def test_a_map_style_dataset_is_read_in_the_order_of_a_run():
    log = []
    contender.map_style("files", "name", MapStyle(Squares(log), list), batch=3).read(4)
    assert log == expected(12, 3)


def test_processes_read_a_map_style_dataset_without_end():
    pytest.importorskip("torch")
    stream = contender.map_style("files", "name", MapStyle(Squares(), list), batch=3).stream()
    batches = list(itertools.islice(stream, 4))
    stream.close()
    assert batches == [[index * index for index in expected(3 * number, 3)] for number in range(4)]


def test_the_own_loader_reads_the_samples_of_training(tmp_path, monkeypatch):
    train, _ = sets.face_set(tmp_path)
    read = []
    monkeypatch.setattr(train, "sample", lambda index, rng: read.append(index) or {"image": np.zeros((2, 2, 3))})
    contender.ours("faces", train, batch=4).read(2)
    assert read == [order.locate(0, len(train), position)[1] for position in range(8, 12)]


def test_the_bare_loop_gives_whole_batches(tmp_path):
    pytest.importorskip("torch")
    train, _ = sets.face_set(tmp_path)
    stream = contender.bare("faces", train, batch=4).stream()
    batch = next(stream)
    stream.close()
    assert tuple(batch.shape) == (4, *train.fields[0].shape)


def test_a_missing_loader_is_an_error_before_anything_is_read(monkeypatch):
    def missing(loader):
        raise UserError(f"no {loader}")

    monkeypatch.setattr(loaders, "require", missing)
    with pytest.raises(UserError, match="no dali"):
        contender.ours("faces", None, 4, "dali")
