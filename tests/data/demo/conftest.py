"""Small demo sets, each generated once per session."""

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

    def load(self, root=None, **keys):
        return data.find(self.name).load(self.settings(root, **keys))

    def settings(self, root=None, **keys):
        values = {"root": str(root or self.root), "workers": 0, **SETTINGS[self.name], **keys}
        return data.find(self.name).Settings(**values)


@pytest.fixture(scope="session")
def demo_set(tmp_path_factory):
    """name -> DemoSet, generated when it is first used."""

    @cache
    def make(name):
        demo = DemoSet(name, str(tmp_path_factory.mktemp(name) / "set"))
        demo.load()
        return demo

    return make
