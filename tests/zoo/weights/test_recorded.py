"""A run takes the settings that weights record where its recipe leaves the defaults."""

import json

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from tests.zoo.weights.state_dicts import as_mindspore, small_resnet
from zoo.config import loader
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.run import weights
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.weights import files, recorded

RECIPE = "configs/resnet50_imagenet.yaml"


@pytest.fixture
def mindcv(tmp_path):
    """A converted ResNet-50 of mindcv."""
    tensors = as_mindspore(small_resnet(depth=50, width=8), "classifier", "down_sample")
    files.write(str(tmp_path / "in.safetensors"), tensors)
    path = str(tmp_path / "mindcv.safetensors")
    assert call_zoo("convert", tmp_path / "in.safetensors", "--out", path) == 0
    return path


def write(path, **metadata):
    values = {key: value if key == "model" else json.dumps(value) for key, value in metadata.items()}
    files.write(str(path), {"fc.bias": np.zeros(3, np.float32)}, values)
    return str(path)


def checkpoint(folder, recipe):
    """Write a folder that looks like a checkpoint of this recipe."""
    folder.mkdir()
    write(folder / "model.safetensors", classes=["a"])
    (folder / "checkpoint.json").write_text(json.dumps({"recipe": recipe}))
    return str(folder)


def test_a_run_takes_the_padding_of_converted_weights(mindcv):
    request = resolve_recipe(Options(RECIPE, ["model.width=8"], weights=mindcv))
    assert request.config.model.padding == "same_pool"
    assert request.resolved["model.padding"] == loader.Entry("same_pool", mindcv)
    assert f"  padding: same_pool{' ' * 25}# {mindcv}" in loader.render(request.resolved)
    assert request.config.model.num_classes is None  # that of the data
    assert (request.config.data.antialias, request.config.data.reduce) == (False, False)
    assert request.config.model.width == 8
    assert resolve_recipe(Options(RECIPE)).config.model.padding == "symmetric"


def test_a_recipe_s_own_padding_stays_and_is_warned_of(mindcv):
    request = resolve_recipe(Options(RECIPE, ["model.padding=symmetric"], weights=mindcv))
    assert request.config.model.padding == "symmetric"
    lines = []
    weights._warn_of_other_arch(recorded.read(mindcv).arch, resnet.Arch(width=8), mindcv, lines.append)
    option = "model.padding=same_pool"
    assert lines == [f"warning: {mindcv} is for {option}, the recipe has symmetric; give -o {option}"]
    lines.clear()
    weights._warn_of_other_arch(recorded.read(mindcv).arch, tsm.Arch(width=8), mindcv, lines.append)
    assert lines == [
        f"warning: {mindcv} is for {option}, the recipe has symmetric; there is no such option for this model"
    ]


def test_settings_of_the_data(tmp_path):
    path = write(tmp_path / "a.safetensors", model="resnet", data={"mean": [0.5, 0.5, 0.5], "normalisation": "plsc"})
    request = resolve_recipe(Options(RECIPE, weights=path))
    assert request.config.data.mean == (0.5, 0.5, 0.5)  # and the key that this data set lacks is left out
    assert request.resolved["data.mean"].origin == path
    given = resolve_recipe(Options(RECIPE, ["data.mean=[0.1,0.2,0.3]"], weights=path))
    assert given.config.data.mean == (0.1, 0.2, 0.3)


def test_a_checkpoint_s_recipe_tells_its_model(tmp_path):
    path = checkpoint(tmp_path / "best", "model: {name: resnet, depth: 50, padding: same, bn_eps: 1.0e-4, decay: all}")
    expected = recorded.Recorded("resnet", {"depth": 50, "padding": "same", "bn_eps": 1e-4}, {}, ())
    assert recorded.read(path) == recorded.read(f"{path}/model.safetensors") == expected
    settings = resolve_recipe(Options(RECIPE, weights=path)).config.model
    assert (settings.padding, settings.bn_eps, settings.decay != "all") == ("same", 1e-4, True)


@pytest.mark.parametrize("recipe", ["no: model", "model: 3", "{", "model: {depth: 18}"])
def test_a_checkpoint_without_a_model(tmp_path, recipe):
    assert recorded.read(checkpoint(tmp_path / "best", recipe)) == recorded.NOTHING
