"""Numbers of the shipped recipes without their data, and that they are those of the real sets."""

from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from zoo import data
from zoo.bench.estimate import described
from zoo.data.errors import UserError
from zoo.run import cli

RECIPES = sorted((ROOT / "configs").rglob("*.yaml"))


def resolve(path, *pairs):
    request = cli.request(str(path), pairs)
    return request.config, request.resolved["data.name"].value


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_known(path):
    cfg, name = resolve(path)
    base = Path(getattr(cfg.data, "root", "")).name
    if name == "portraits":
        pytest.skip("its number of identities is a setting of the recipe")
    absent = () if name == "synthetic" else (f"data.root=/nowhere/{base}",)
    found = described.describe(*resolve(path, *absent), None, None)
    assert found.classes >= 5 and found.fields[0].name in ("image", "video")
    if cfg.upstream and name != "synthetic":
        assert found.samples == cfg.upstream.train_samples


def test_the_shape_is_that_of_the_recipe():
    absent = ("data.root=/nowhere/k400", "data.size=160", "data.segments=4")
    found = described.describe(*resolve("configs/tsm_k400.yaml", *absent), None, None)
    assert found.fields[0].shape == (4, 160, 160, 3) and found.classes == 400 and "/nowhere/k400" in found.origin


@pytest.mark.slow
@pytest.mark.parametrize("recipe, unit", [("tsm", "clips"), ("resnet50", "images"), ("deeplabv3plus", "images")])
def test_demos_have_the_shape_of_their_data(recipe, unit, demo_sets):
    path = ROOT / f"configs/{recipe}_demo.yaml"
    made = (f"data.root={demo_sets[recipe]}", f"data.train_{unit}=24", f"data.val_{unit}=8")
    cfg, name = resolve(path, *made)
    real, _ = data.find(name).load(cfg.data)
    found = described.describe(*resolve(path, f"data.root=/nowhere/{name}"), None, None)
    assert found.classes == len(real.classes) and found.fields[0].shape == real.fields[0].shape


def test_given_numbers_count():
    cfg, name = resolve("configs/arcface_ms1m.yaml", "data.root=/nowhere/mine")
    found = described.describe(cfg, name, 12, 34)
    assert (found.classes, found.samples) == (12, 34)
    with pytest.raises(UserError, match="--classes"):
        described.describe(cfg, name, None, 34)
