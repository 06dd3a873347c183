"""zoo train --schema: the JSON Schema of recipes, against which those of the zoo are valid and wrong ones are not."""

import json
import math

import pytest
import yaml

from tests.helpers.json_schema import errors
from zoo.commands import json_schema, train
from zoo.commands.keys import catalog, owners
from zoo.config.loader import SHIPPED_RECIPES

RECIPES = sorted(SHIPPED_RECIPES.rglob("*.yaml"))


@pytest.fixture(scope="module")
def schema():
    return json.loads(json.dumps(json_schema.schema()))


@pytest.fixture(scope="module")
def violations(schema):
    return lambda recipe: [*errors(yaml.safe_load(recipe), schema)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.relative_to(SHIPPED_RECIPES).as_posix())
def test_the_recipes_of_the_zoo_are_valid(violations, path):
    assert violations(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "recipe",
    [
        "foo: 1",
        "seed: -1",
        "optim: {lrr: 0.1}",
        "optim: {lr: -1}",
        "optim: {lr: high}",
        "optim: {schedule: steps}",
        "optim: {name: sgd, beta1: 0.9}",
        "optim: {momentum: 1}",
        "optim: {groups: [{match: fc}]}",
        "optim: {groups: [{lr: 0.1}]}",
        "optim: {groups: [{match: fc, lrr: 0.1}]}",
        "train: {batch: 0}",
        "train: {batch: 1.5}",
        "train: {batch: true}",
        "train: {precision: fp8}",
        "train: {log_every: 3 hours}",
        "model: {name: resnet, segments: 8}",
        "model: {name: resnett}",
        "model: {depth: 17}",
        "data: {name: kinetics, size: 13}",
        "data: {name: imagenet, decoder: pyav}",
        "data: {mean: [0.5, 0.5]}",
        "data: {mean: [123.7, 116.3, 103.5]}",
        "data: {augment: [nothing]}",
        "data: {augment: [{rand_augment: {n: 2}, horizontal_flip: {}}]}",
        "task: {loss: dice, gamma: 2}",
        "upstream: {commit: abc, url: x}",
    ],
)
def test_wrong_keys_and_values_are_not(violations, recipe):
    assert violations(recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        "base: tsm_k400",
        "model: {segments: 8}\ndata: {decoder: decord}\noptim: {beta1: 0.8}\ntask: {gamma: 3}",  # those of the base
        "optim: {groups: [{match: fc, lr: 0.1}], weight_decay: 1e-4, clip_norm: null}",
        "task: {loss: cross_entropy, ohem_kept: 3}",  # of segmentation
        "data: {name: kinetics, augment: [horizontal_flip, {rand_augment: {n: 2}}], workers: auto}",
        "train: {log_every: 0.5 epochs, save_every: 500, compile: reduce-overhead}\nupstream: null",
    ],
)
def test_what_the_loader_takes_is_valid(violations, recipe):
    assert violations(recipe) == []


def test_every_key_has_a_description_and_its_default(schema):
    sections = {
        "": schema,
        **{name: schema["properties"][name] for name in ("model", "data", "task", "train", "optim")},
        "optim.groups": schema["properties"]["optim"]["properties"]["groups"]["items"],
        "upstream": schema["properties"]["upstream"]["anyOf"][0],
    }
    for key in catalog(owners()):
        section, _, name = key.name.rpartition(".")
        found = sections[section]["properties"][name]
        for choice in [found] if "description" in found else found["anyOf"]:
            assert choice["description"].endswith(".")
            assert "default" in choice or key.default in ("", "that of the task")
    batch = schema["properties"]["train"]["properties"]["batch"]
    assert batch["default"] == 16 and batch["minimum"] == 1 and batch["type"] == "integer"
    assert schema["$defs"]["data.kinetics"]["properties"]["size"]["minimum"] == 14
    angle = schema["$defs"]["task.face.arcface"]["properties"]["m2"]
    assert angle["exclusiveMaximum"] == math.pi and angle["minimum"] == 0


def test_the_command_prints_it(capsys, schema):
    assert train.main(["--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_another_validator_says_the_same(schema):
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    validator.check_schema(schema)
    for path in RECIPES:
        validator(schema).validate(yaml.safe_load(path.read_text(encoding="utf-8")))
