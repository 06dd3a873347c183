"""Small data sets for `zoo data prepare`, what it makes of them, and how to run it in this process."""

import csv
import os

import numpy as np

from tests.helpers import packs
from tests.helpers.cli import call_zoo
from zoo.data import order
from zoo.data.preparing import job, work


def serial_prepare(monkeypatch):
    """Return a function that runs `zoo data prepare` without other processes and with chunks of a few files."""

    def run(tasks, workers, show):
        for task in tasks:
            work.work_on(task, lambda position: True)
        show(1)

    monkeypatch.setattr(work, "run", run)
    monkeypatch.setattr(job, "MIN_CHUNK", 300)
    monkeypatch.setattr(job, "CHUNKS", 3)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and of no effect on what is read again
    return prepare


def prepare(*words):
    """Run `zoo data prepare` and return its exit code."""
    return call_zoo("data", "prepare", *words)


def unreadable(out):
    """Return {path: reason} of unreadable.csv."""
    with open(out / "unreadable.csv", encoding="utf-8", errors="surrogateescape", newline="") as file:
        return {row["path"]: row["reason"] for row in csv.DictReader(file)}


def image_folders(root, counts=(5, 2), classes=("cat", "dog")):
    """Write train/<class>/ and val/<class>/ with images that differ."""
    value = 0
    for split, count in zip(("train", "val"), counts):
        for name in classes:
            os.makedirs(root / split / name)
            for number in range(count):
                (root / split / name / f"{number}.png").write_bytes(packs.encoded_image(value, 24))
                value += 5
    return root


def all_samples(splits):
    """Return the samples of splits, each drawn as in epoch 0 of a run."""
    return [
        split.sample(index, order.generator(0, "augment", index)) for split in splits for index in range(len(split))
    ]


def assert_equal_samples(samples, expected):
    assert len(samples) == len(expected) > 0
    for one, other in zip(samples, expected):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def contents(folder):
    """Return the bytes of all files below a folder, by relative path."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found
