"""The table of --plan: where the number of samples comes from, and what is not known without it."""

import re

import pytest

from tests.helpers.paths import CONFIGS, ROOT
from zoo.commands import plan
from zoo.data.errors import UserError
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

SYNTHETIC = ("data.name=synthetic", "data.kind=clip", "data.train_samples=1000")


def published(worlds, *changes, recipe="tsm_k400"):
    return plan.table(resolve_recipe(Options(str(CONFIGS / f"{recipe}.yaml"), ["data.root=missing", *changes])), worlds)


def synthetic(worlds, *changes):
    return plan.table(resolve_recipe(Options(str(CONFIGS / "tsm_k400.yaml"), [*SYNTHETIC, *changes])), worlds)


def row(table, name):
    return next(line for line in table.splitlines() if line.startswith(f"{name}  "))[len(name) :].split()


def test_numbers_of_data_at_hand():
    changes = ("optim.warmup=2 epochs", "train.batch=10", "train.eval_every=0.5 epochs")
    table = synthetic("1, 2x2", *changes)
    assert table.startswith("tsm_k400: torch, synthetic, 1000 training samples\n")
    expected = {
        "processes": ["1", "2x2"],
        "global batch": ["10", "40"],
        "steps per epoch": ["100", "25"],
        "steps": ["5000", "1250"],
        "epochs": ["50", "50"],
        "steps of warm-up": ["200", "50"],
        "steps per evaluation": ["50", "12.5"],
    }
    assert {name: row(table, name) for name in expected} == expected


def test_a_run_whose_length_is_given_in_steps():
    table = synthetic("4", "train.epochs=null", "train.steps=300", "train.batch=5", "train.eval_every=7")
    assert [row(table, name) for name in ("steps", "epochs", "steps per evaluation")] == [["300"], ["6"], ["7"]]


def test_a_global_batch_is_divided_into_micro_batches():
    table = synthetic("1,8", "train.global_batch=96")
    assert [row(table, name) for name in ("batch per process", "micro-batches", "global batch", "learning rate")] == [
        ["16", "12"],
        ["6", "1"],
        ["96", "96"],
        ["0.015", "0.015"],
    ]


def test_without_data_an_epoch_is_that_of_the_upstream():
    table = published("8")
    assert "234584 training samples as upstream" in table and row(table, "steps") == ["91635"]


def test_without_data_and_upstream_what_follows_is_not_known():
    table = published("8", "upstream=null")
    assert "no data at missing" in table and row(table, "epochs") == ["50"] and row(table, "learning rate") == ["0.02"]
    unknown = ("steps per epoch", "steps", "steps per evaluation")
    assert [row(table, name) for name in unknown] == [["-"]] * 3


@pytest.mark.parametrize(
    "changes, expected",
    [
        (["train.precision=fp16", "optim.loss_scale=512"], "precision fp16, static loss scale 512;"),
        (["train.precision=amp", "train.amp_level=O2"], "precision amp (O2), dynamic loss scale;"),
        (["train.precision=bf16"], "precision bf16;"),
        (["optim.schedule=cosine"], "learning rate cosine to 0; warm-up none"),
        (["optim.schedule=poly", "optim.min_lr=1e-4", "optim.warmup=5"], "0.9 to 0.0001; warm-up 5 steps"),
        (["optim.schedule=linear"], "learning rate linear to 0;"),
        (["optim.schedule=exponential", "optim.gamma=0.9"], "learning rate x 0.9 per epoch;"),
        (["optim.schedule=one_cycle"], "learning rate one_cycle from 1/25, highest after 0.3 of the steps;"),
        (["target=null"], "target -\n"),
    ],
)
def test_facts_that_do_not_depend_on_the_number_of_processes(changes, expected):
    assert expected in synthetic("1", *changes)


@pytest.mark.parametrize("worlds", ["0", "1x2x3", "x", "8,", "1,-2", "four"])
def test_numbers_of_processes_that_are_none(worlds):
    with pytest.raises(UserError, match="--plan: expected HOSTSxPROCESSES"):
        synthetic(worlds)


def test_impossible_recipes():
    with pytest.raises(UserError, match="train.global_batch: 96 samples cannot be shared evenly by 5"):
        synthetic("1,5", "train.global_batch=96")
    with pytest.raises(UserError, match="optim.warmup: 50 epochs are 3125 steps"):
        synthetic("1", "optim.warmup=50 epochs")


@pytest.mark.parametrize("page", ["distributed"])
def test_tables_of_the_docs(page):
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ zoo train -c (\S+) --plan (\S+)\n(.*?)^```", text, re.M | re.S)
    assert shown
    for recipe, worlds, table in shown:
        assert plan.table(resolve_recipe(Options(str(ROOT / recipe), ["data.root=missing"])), worlds) == table
