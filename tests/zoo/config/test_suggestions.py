"""Hints at the key that was meant by an unknown one."""

import pytest

from tests.helpers.paths import ROOT
from tests.zoo.config.recipe_files import message_of
from zoo.config import loader
from zoo.config.suggestions import SYNONYMS, suggestion
from zoo.run.cli import FIND

RECIPES = ("tsm_demo", "resnet50_demo", "deeplabv3plus_demo", "arcface_demo")


def unknown(recipe, key):
    """Return the message about an unknown key of a shipped recipe."""
    entries = loader.read(str(ROOT / f"configs/{recipe}.yaml"))
    return message_of(loader.build, {**entries, **loader.overrides([f"{key}=1"])}, FIND)


@pytest.mark.parametrize("meant", SYNONYMS)
def test_names_of_other_projects(meant):
    resolved = {name: loader.build(loader.read(str(ROOT / f"configs/{name}.yaml")), FIND)[1] for name in RECIPES}
    recipe = next(name for name in RECIPES if meant in resolved[name])  # every key that is hinted at exists
    section = meant.rpartition(".")[0] or "train"
    for name in SYNONYMS[meant]:
        for key in (name, f"{section}.{name}", f"{section}.{name.upper()}"):
            assert f"did you mean {meant}?" in unknown(recipe, key)


def test_each_name_means_one_key():
    names = [name for names in SYNONYMS.values() for name in names]
    assert len(names) == len(set(names))


def test_the_same_name_comes_before_a_synonym_and_that_before_the_spelling():
    known = ["optim.lr", "train.learning_rat", "train.batch"]
    assert suggestion("optim.learning_rate", known) == "; did you mean optim.lr?"
    assert suggestion("optim.learning_rate", [*known, "model.learning_rate"]).endswith("model.learning_rate?")
    assert suggestion("optim.learning_rte", known).endswith("train.learning_rat?")


def test_a_synonym_of_a_key_that_the_recipe_has_not():
    assert "data.segments" not in unknown("resnet50_demo", "num_segments")
