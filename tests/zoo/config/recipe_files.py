"""Recipes in files for the tests of zoo/config."""

import pytest

from zoo.config import loader
from zoo.data.errors import UserError
from zoo.run.request import FIND

SMALL = """\
model:
  name: tsm
data:
  name: kinetics
train:
  epochs: 2
"""


def write(folder, text, name="r.yaml"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def build(folder, text=SMALL, *changes):
    """Build the Config and resolved entries of a recipe with -o changes."""
    return loader.build({**loader.read(write(folder, text)), **loader.overrides(changes)}, FIND)


def values(entries):
    return {key: entry.value for key, entry in entries.items()}


def message_of(call, *arguments):
    """Return the message of the UserError that a call raises."""
    with pytest.raises(UserError) as error:
        call(*arguments)
    return str(error.value)
