"""Batches for a loop of one's own: numbers, epochs, ranks and their end; api_cases.py compares them with a run's."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

import zoo
from tests.helpers.paths import ROOT
from zoo.data.datasets import synthetic
from zoo.data.errors import BadSample, UnreadableData, UserError

SMALL = {
    "data.name": "synthetic",
    "data.size": 8,
    "data.num_classes": 4,
    "data.train_samples": 14,
    "data.val_samples": 4,
    "data.workers": 0,
    "train.batch": 4,
    "train.epochs": 3,
    "optim.warmup": "0 steps",
}


def read(**options):
    return list(zoo.batches("resnet50_demo", SMALL, **options))


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_loop_goes_on_at_any_batch():
    whole = read()
    assert len(whole) == 11  # 3 epochs of 14 samples by 4
    assert_equal(read(start=4), whole[4:])
    assert_equal(read(start=4, stop=6), whole[4:6])
    assert_equal(read(stop=13)[:11], whole)
    with zoo.batches("resnet50_demo", SMALL, start=2) as batches:
        assert (len(batches), batches.first, batches.number, batches.last) == (9, 2, 2, 11)
        next(batches), next(batches)
        assert batches.number == 4 and batches.epoch == 1  # positions 16 to 19 of 14 samples in an epoch
        again = zoo.batches("resnet50_demo", SMALL, start=batches.number)
        assert_equal([next(again)], [next(batches)])


def test_epochs_are_the_sequence_of_the_run():
    epochs = [read(epoch=number) for number in range(3)]
    assert [len(epoch) for epoch in epochs] == [4, 3, 4]  # those that begin in it
    assert_equal([batch for epoch in epochs for batch in epoch], read())
    assert_equal(read(epoch=1, start=1), epochs[1][1:])
    assert_equal(read(epoch=7), read(start=25, stop=28))  # also beyond the recipe's end


def test_ranks_share_the_batches_of_one():
    together = list(zoo.batches("resnet50_demo", {**SMALL, "train.batch": 8}))
    ranks = [read(rank=rank, world_size=2) for rank in range(2)]
    joined = [{name: np.concatenate([a[name], b[name]]) for name in a} for a, b in zip(*ranks, strict=True)]
    assert_equal(joined, together)


@pytest.mark.parametrize("workers", [1, 2])
def test_reading_processes_change_nothing_and_end(workers):
    before = set(psutil.Process().children())
    with zoo.batches("resnet50_demo", {**SMALL, "data.workers": workers}) as batches:
        assert_equal([next(batches) for _ in range(3)], read(stop=3))
        processes = set(psutil.Process().children()) - before
    assert len(processes) == workers and not any(process.is_running() for process in processes)
    with pytest.raises(StopIteration):
        next(batches)


def test_batches_that_are_dropped_end_their_threads():
    before = threading.active_count()
    batches = zoo.batches("resnet50_demo", SMALL)
    next(batches)
    del batches
    gc.collect()
    assert threading.active_count() <= before + SMALL["data.workers"] + 2  # idle threads of the readers' pool


def test_a_recipe_is_named_as_for_a_run(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: resnet50_demo\nseed: 9\n")
    for recipe in (path, str(path)):
        assert_equal(list(zoo.batches(recipe, SMALL)), list(zoo.batches("resnet50_demo", {**SMALL, "seed": 9})))
    code = f"import sys, zoo; next(zoo.batches('resnet50_demo', {SMALL})); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"framework": "tf"}, "framework: expected one of torch, paddle, mindspore, jax, or None for numpy; got 'tf'"),
        ({"epoch": 1.5}, "epoch: expected a whole number from 0 on, got 1.5"),
        ({"start": -1}, "start: expected a whole number from 0 on, got -1"),
        ({"stop": "end"}, "stop: expected a whole number from 0 on, got 'end'"),
        ({"rank": 2, "world_size": 2}, "rank: 2 is none of the ranks of world_size=2, which begin with 0"),
        (
            {"overrides": {**SMALL, "data.sice": 4}},
            "overrides: data.sice: unknown key for data.name",
        ),
        ({"recipe": "resnet50_dmo"}, "resnet50_dmo: there is no such recipe; did you mean resnet50_demo?"),
        ({"recipe": Path("no.yaml")}, "no.yaml: there is no such recipe"),
        ({"start": 5, "stop": 2}, "stop: 2 comes before start=5; give the number after the last batch"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace("(", r"\(")):
        zoo.batches(**{"recipe": "resnet50_demo", "overrides": SMALL, **options})


def test_unreadable_samples_are_replaced_and_counted(monkeypatch):
    sample = synthetic.SyntheticSplit.sample

    def damaged(self, index, rng):
        if index == 3:
            raise BadSample("is damaged")
        return sample(self, index, rng)

    monkeypatch.setattr(synthetic.SyntheticSplit, "sample", damaged)
    with pytest.warns(UserWarning, match="is damaged; .* takes its place"):
        assert len(list(zoo.batches("resnet50_demo", {**SMALL, "data.max_bad": 0.1}))) == 11
    with pytest.raises(UnreadableData, match=r"(?s)1 of 14 .* overrides={'data.max_bad': 'FRACTION'}"), pytest.warns():
        list(zoo.batches("resnet50_demo", SMALL))
