"""Small demo sets, each generated once per session."""

import os
import time
from functools import cache
from typing import NamedTuple

import pytest

from zoo import data

SETTINGS = {
    "motion": {"train_clips": 32, "val_clips": 16, "size": 32},
    "shapes": {"train_images": 32, "val_images": 16, "size": 32},
    "streets": {"train_images": 6, "val_images": 3},
    "portraits": {"identities": 3, "shots": 2, "val_identities": 4, "val_shots": 3, "val_pairs": 20, "size": 24},
}


class DemoSet(NamedTuple):
    name: str
    root: str
    seconds: float  # that generating it took

    def load(self, root=None, **keys):
        return data.find(self.name).load(self.settings(root, **keys))

    def settings(self, root=None, **keys):
        return data.find(self.name).Settings(
            **{"root": str(root or self.root), "workers": 0, **SETTINGS[self.name], **keys}
        )


@pytest.fixture(scope="session")
def demo_set(tmp_path_factory):
    """name -> DemoSet, generated when it is first used."""

    @cache
    def make(name):
        root = str(tmp_path_factory.mktemp(name) / "set")
        start = time.perf_counter()
        DemoSet(name, root, 0.0).load()
        return DemoSet(name, root, time.perf_counter() - start)

    return make


@pytest.fixture(scope="session")
def read_files():
    """Folder -> {path in it: content} of all files."""

    def read(root):
        contents = {}
        for folder, _, names in os.walk(root):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    contents[os.path.relpath(os.path.join(folder, name), root)] = file.read()
        return contents

    return read
