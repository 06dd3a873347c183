"""A run takes model and input from the checkpoint that it starts from or evaluates, unless -o says otherwise."""

import re
import shutil

import pytest

from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.config import loader
from zoo.data.errors import Option, UserError
from zoo.run import hub, recorded_recipe
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

RESNET, TSM = "configs/resnet50_imagenet.yaml", "configs/tsm_k400.yaml"


@pytest.fixture
def checkpoint(tmp_path):
    """A ResNet-18 of width 8 for three classes on images of 32 pixels; its recipe is resnet50_demo with these."""
    return api_cases.write_checkpoint(tmp_path)[0]


def test_weights_of_the_command_line_precede_the_recipe(checkpoint):
    request = resolve_recipe(Options(RESNET, weights=checkpoint))
    model, data = request.config.model, request.config.data
    assert (model.depth, model.width, data.size) == (18, 8, 32)
    assert (model.decay, model.zero_gamma, data.root) == ("all_but_bn", False, "datasets/imagenet")  # of the recipe
    assert model.num_classes is None and request.config.optim.lr != 0.1
    assert request.resolved["model.depth"] == loader.Entry(18, checkpoint)
    changes = "data.size: 224 -> 32, model.depth: 50 -> 18, model.width: 64 -> 8"
    assert request.notes == [f"taken from {checkpoint}, unless -o says otherwise: {changes}"]


def test_o_precedes_the_weights(checkpoint):
    request = resolve_recipe(Options(RESNET, ["data.size=64", f"weights={checkpoint}"]))
    assert (request.config.data.size, request.config.model.depth) == (64, 18)
    assert resolve_recipe(Options(RESNET)).notes == []


def test_weights_that_a_recipe_names_fill_only_its_defaults(checkpoint, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"base: {ROOT / RESNET}\nweights: {checkpoint}\n")
    request = resolve_recipe(Options(str(recipe)))
    assert (request.config.model.depth, request.config.model.width) == (50, 8)  # the recipe has no width


def test_the_number_of_classes_is_that_of_the_weights_in_an_evaluation_alone(checkpoint):
    assert resolve_recipe(Options(RESNET, weights=checkpoint, eval_only=True)).config.model.num_classes == 3
    given = resolve_recipe(Options(RESNET, ["model.num_classes=5"], weights=checkpoint, eval_only=True))
    assert given.config.model.num_classes == 5


def test_the_class_names_of_the_weights_are_not_those_of_a_fresh_head(checkpoint, tmp_path):
    path = tmp_path / "run/checkpoints/last/checkpoint.json"
    path.write_text(path.read_text().replace("names: null", "names: a.txt"))
    assert resolve_recipe(Options(RESNET, weights=checkpoint)).config.data.names == "a.txt"
    assert resolve_recipe(Options(RESNET, ["fresh_head=true"], weights=checkpoint)).config.data.names is None


def test_weights_of_another_model_are_told_in_one_line(checkpoint):
    message = f"{checkpoint} holds the model resnet, this recipe trains tsm: give a recipe of resnet"
    with pytest.raises(UserError, match=re.escape(message)) as error:
        resolve_recipe(Options(TSM, weights=checkpoint))
    assert len(str(error.value).splitlines()) == 1
    settings = resolve_recipe(Options(TSM, ["fresh_head=true"], weights=checkpoint)).config
    assert (settings.model.depth, settings.model.width, settings.data.size) == (18, 8, 32)


@pytest.mark.parametrize("suffix", ["", "/model.safetensors"])
def test_a_checkpoint_is_a_recipe(checkpoint, suffix):
    request = resolve_recipe(Options(None, ["optim.lr=0.5"], weights=checkpoint + suffix, framework="paddle"))
    config, given = request.config, resolve_recipe(Options("configs/resnet50_demo.yaml", api_cases.PAIRS)).config
    assert request.recipe == "run" and config.weights == checkpoint + suffix
    assert (config.model, config.data, config.train, config.task) == (given.model, given.data, given.train, given.task)
    assert (config.optim.lr, config.framework, config.out) == (0.5, "paddle", None)


def test_only_a_checkpoint_is_a_recipe(tmp_path):
    with pytest.raises(UserError, match="has no checkpoint.json"):
        resolve_recipe(Options(None, weights=str(tmp_path)))
    with pytest.raises(UserError, match="nowhere: there is no such file or folder of weights"):
        resolve_recipe(Options(None, weights="nowhere"))
    with pytest.raises(UserError, match="no recipe: name one with -c"):
        resolve_recipe(Options(None))


def test_a_run_that_is_resumed_takes_the_same_settings(checkpoint, tmp_path):
    first = resolve_recipe(Options(RESNET, weights=checkpoint))
    run = tmp_path / "resumed"
    run.mkdir()
    (run / "config.yaml").write_text(loader.render(first.resolved))
    for again in (
        resolve_recipe(Options(RESNET, resume=str(run))),
        resolve_recipe(Options(RESNET, resume=str(run), weights=checkpoint)),
        resolve_recipe(Options(None, resume=str(run))),
        resolve_recipe(Options(None, resume=str(run), eval_only=True)),
    ):
        assert again.changed in ([], [f"weights: {checkpoint} -> None"]) and again.config.model == first.config.model
    given = resolve_recipe(Options(RESNET, ["data.size=64"], weights=checkpoint))
    (run / "config.yaml").write_text(loader.render(given.resolved))
    assert resolve_recipe(Options(None, resume=str(run))).config.data.size == 64
    assert (
        resolve_recipe(Options(str(run / "config.yaml"))).config.data.size == 64
    )  # the file is younger than its weights


def test_a_path_that_is_not_there_has_no_settings(checkpoint):
    entries = {"weights": loader.Entry(checkpoint + "x", Option("--weights"))}
    assert recorded_recipe.recorded_settings(entries, {}, checkpoint + "x", True) == {}


def test_a_recipe_has_the_name_of_its_weights_and_no_path_of_this_host(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "resolve", {"hf://a/b@v1": checkpoint}.__getitem__)
    first = resolve_recipe(Options(RESNET, weights="hf://a/b@v1"))
    assert (first.config.weights, first.resolved["weights"].value) == (checkpoint, "hf://a/b@v1")
    assert first.config.model.depth == 18
    run = tmp_path / "resumed"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.yaml").write_text(loader.render(first.resolved))
    shutil.copytree(checkpoint, run / "checkpoints/step-00000003")
    monkeypatch.setattr(hub, "resolve", None)  # they are not needed any more: offline, or removed since
    for again in (resolve_recipe(Options(None, resume=str(run))), resolve_recipe(Options(RESNET, resume=str(run)))):
        assert again.config.model == first.config.model and again.resolved["weights"].value in ("hf://a/b@v1", None)


def test_a_run_without_its_recipe_goes_on_with_that_of_its_checkpoint(checkpoint, tmp_path):
    folder = tmp_path / "run"
    (folder / "config.yaml").unlink(missing_ok=True)
    (folder / "checkpoints/last").rename(folder / "checkpoints/step-00000003")
    request = resolve_recipe(Options(None, resume=str(folder)))
    assert (request.config.model.depth, request.config.data.size) == (18, 32) and not request.changed
    with pytest.raises(UserError, match="seed: 1 -> 7"):
        resolve_recipe(Options(str(ROOT / RESNET), ["seed=7"], resume=str(folder)))
    shutil.rmtree(folder / "checkpoints")
    (folder / "events.jsonl").touch()
    with pytest.raises(UserError, match="has no config.yaml and no checkpoint; name the recipe of the run with -c"):
        resolve_recipe(Options(None, resume=str(folder)))
