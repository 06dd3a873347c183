"""Both loaders: a batch does not depend on ranks, batch size, resumes and workers, also where samples are replaced."""

import dataclasses

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.sets import DAMAGES, needs_dali
from zoo.data.stream import open_evaluation, open_training

LOADERS = ("reference", pytest.param("dali", marks=needs_dali))
BATCH, BATCHES = 12, 2  # of a single process
SEED = 5
# Suffixes of the files that are damaged, and how: the header shows it.
DAMAGED = {"images": "train/*/[1-3].jpg", "frames": "clip1/*", "faces": "train/0[0-1]/[0-2].jpg"}


@pytest.fixture(params=["plain_images", "views", "scenes", "damaged images", "damaged frames", "damaged faces"])
def name(request):
    return request.param


def load(name, root, loader, **keys):
    """Load a set of sets.SETS, or one of them with damaged files."""
    kind = name.removeprefix("damaged ")
    if kind == "faces":
        keys["eval_bad"] = "wrong"
    train, val = sets.SETS[kind](root, loader=loader, **keys)
    if name != kind:
        for number, path in enumerate(sorted(root.glob(DAMAGED[kind]))):
            damage = DAMAGES[("empty", "cut", "page")[number % 3]]
            path.write_bytes(damage(path.read_bytes()))
    return train, val


def read(split, batch=BATCH, first=0, last=BATCHES, rank=0, size=1):
    return list(open_training(split, SEED, batch, first, last, rank, size))


def assert_same(expected, given):
    """Compare batches of (batch, unreadable) in every byte."""
    assert len(expected) == len(given)
    for (left, entries), (right, others) in zip(expected, given):
        assert entries == others and left.keys() == right.keys()
        for key in left:
            assert np.array_equal(left[key], right[key]), key


def joined(parts):
    """Join the batches that ranks read at the same time, or that follow each other, to one."""
    batches, entries = zip(*parts)
    arrays = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    return arrays, [entry for rank_entries in entries for entry in rank_entries]


@pytest.mark.parametrize("loader", LOADERS)
def test_training(name, loader, tmp_path):
    train, _ = load(name, tmp_path, loader)
    whole = read(train)
    assert not name.startswith("damaged") or any(entries for _, entries in whole)
    for size in (2, 3):
        ranks = [read(train, BATCH // size, rank=rank, size=size) for rank in range(size)]
        assert_same(whole, [joined(parts) for parts in zip(*ranks)])
    single = read(train, 1, last=BATCH * BATCHES)
    assert_same(whole, [joined(single[start : start + BATCH]) for start in range(0, len(single), BATCH)])
    assert_same(whole[1:], read(train, first=1))
    assert_same(single[BATCH + 5 :], read(train, 1, first=BATCH + 5, last=BATCH * BATCHES))


@pytest.mark.parametrize("loader", LOADERS)
def test_evaluation(name, loader, tmp_path):
    _, val = load(name, tmp_path, loader)
    singles = list(open_evaluation(val, SEED, 1))
    assert len(singles) == len(val)
    for rank in (0, 1):
        for number, (batch, entries) in enumerate(open_evaluation(val, SEED, 1, rank, 2)):
            index = 2 * number + rank
            if index < len(val):
                assert_same([singles[index]], [(batch, entries)])
            else:
                assert not batch["valid"].any() and entries == []


@needs_dali
@pytest.mark.slow
@pytest.mark.parametrize("name", ["damaged images"], indirect=True)
def test_workers(name, tmp_path):
    """Processes with several threads each, from the start and from the middle of an epoch."""
    train, _ = load(name, tmp_path, "dali")
    whole = read(train, 5, last=6)
    train.settings = dataclasses.replace(train.settings, workers=2, threads=2)
    assert_same(whole, read(train, 5, last=6))
    assert_same(whole[2:], read(train, 5, first=2, last=6))
