"""Small data sets for tools/prepare.py, what it makes of them, and how to run it in this process."""

import os

from tests.helpers import packs
from tests.helpers.cli import call_zoo
from zoo.data.preparing import plan, pool, work


class LocalCounters:
    """Counters of a single process."""

    def begin(self, chunk, position):
        pass

    def add(self, done, bad):
        pass

    def stopped(self):
        return False


def serial_prepare(monkeypatch):
    """Return a function that runs tools/prepare.py without other processes and with chunks of a few files."""

    def run(tasks, workers, show):
        return sorted(filter(None, [work.run(task, LocalCounters()) for task in tasks]))

    monkeypatch.setattr(pool, "run", run)
    monkeypatch.setattr(plan, "MIN_CHUNK", 300)
    monkeypatch.setattr(plan, "CHUNKS", 3)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and of no effect on what is read again
    return lambda *words: call_zoo("data", "prepare", *words)


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


def contents(folder):
    """Return the bytes of all files below a folder, by relative path."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found
