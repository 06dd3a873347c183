"""Runs with a moving average: stopped and resumed, switched on and off, and what is loaded from their checkpoints."""

import json
import os

import numpy as np
import pytest

import zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.run.checkpoint import load_checkpoint
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.trainer.torch import Trainer
from zoo.weights.recorded import has_averages

RECIPE = ROOT / "configs/resnet50_demo.yaml"
EMA = {"train.ema": 0.9}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that trains up to an update and returns the last checkpoint."""
    folder = tmp_path_factory.mktemp("runs")

    def train(name, resume=False, max_steps=None, **changes):
        settings = {**api_cases.RUN, "data.root": str(folder / "shapes"), "train.eval_every": 3, **changes}
        place = {"resume": folder / name} if resume else {"out": folder / name}
        return zoo.Run(RECIPE, settings, max_steps=max_steps, **place).train().folder + "/checkpoints/last"

    return train


@pytest.fixture(scope="module")
def whole(run):
    return run("whole", **EMA, **{"train.eval_train_samples": 3})


def averages(tensors):
    return {name.removeprefix("ema/"): array for name, array in tensors.items() if name.startswith("ema/")}


def test_a_resumed_run_goes_on_bit_for_bit(run, whole):
    run("stopped", max_steps=3, **EMA)
    resumed, expected = load_checkpoint(run("stopped", resume=True, **EMA))[0], load_checkpoint(whole)[0]
    assert resumed.keys() == expected.keys() and averages(expected).keys() < expected.keys()
    assert all(np.array_equal(resumed[name], expected[name]) for name in expected)


def test_switched_on_and_off_at_a_resume(run, capfd):
    before = load_checkpoint(run("switched", max_steps=3))[0]
    capfd.readouterr()
    path = run("switched", resume=True, max_steps=4, **EMA)
    assert "has no moving average; it starts from these weights" in capfd.readouterr().out
    after = load_checkpoint(path)[0]
    rate = np.float32(9) / np.float32(14)  # of the fourth update
    for name, average in averages(after).items():
        assert np.array_equal(average, before[name] - rate * (before[name] - after[name])), name
    path = run("switched", resume=True, max_steps=5)
    assert "train.ema is off: the moving average" in capfd.readouterr().out and not has_averages(path)


def test_statistics_are_averaged_over_ranks_before_they_are_saved(run, monkeypatch):
    """Here of one rank, whose trainer would average nothing."""

    def sync_batch_stats(trainer):
        for name, tensor in [*trainer.tensors.items(), *trainer.ema.averages.items()]:
            if ".running_" in name:
                tensor.detach().fill_(7.0)

    monkeypatch.setattr(Trainer, "sync_batch_stats", sync_batch_stats)
    saved = load_checkpoint(run("averaged", max_steps=1, **EMA))[0]
    assert all((array == 7.0).all() == (".running_" in name) for name, array in saved.items() if array.ndim)


def test_both_are_evaluated_and_the_average_selects_the_best(whole):
    with open(os.path.join(whole, "../../events.jsonl")) as file:
        evaluations = [event for event in map(json.loads, file) if event["event"] == "eval"]
    assert [event["step"] for event in evaluations] == [3, 6]
    for event in evaluations:
        others = {"event", "time", "step", "epoch", "accuracy", "seconds", "bad", "ema", "train"}
        assert event["ema"].keys() == event.keys() - others
        assert event["accuracy"] == event["ema"]["top1"]
        train = event["train"]
        assert train["ema"].keys() == train.keys() - {"bad", "ema"}
        assert len({numbers["loss"] for numbers in (event, event["ema"], train, train["ema"])}) == 4


def test_a_model_is_loaded_with_the_average_unless_told_otherwise(whole, capfd):
    tensors = load_checkpoint(whole)[0]
    for options, expected in (({}, averages(tensors)), ({"raw": True}, tensors)):
        model = zoo.load(whole, **options).model
        np.testing.assert_array_equal(model.fc.weight.detach().numpy(), expected["fc.weight"])
        assert ("the moving average (EMA)" in capfd.readouterr().err) == (not options)
    weights = zoo.numpy_weights("resnet18", width=8, pretrained=whole)
    np.testing.assert_array_equal(weights["bn1.running_mean"], averages(tensors)["bn1.running_mean"])
    weights = zoo.numpy_weights("resnet18", width=8, pretrained=f"{whole}/model.safetensors")
    np.testing.assert_array_equal(weights["bn1.running_mean"], tensors["bn1.running_mean"])


def test_an_evaluation_takes_the_average_from_the_weights_alone(whole):
    """That of a folder; not where a file or -o says otherwise."""

    def taken(path, *overrides, eval_only=True):
        return resolve_recipe(Options(str(RECIPE), overrides, weights=path, eval_only=eval_only)).config.train.ema

    assert taken(whole) == 0.9 and taken(whole, eval_only=False) is None
    file = f"{whole}/model.safetensors"
    assert taken(file) is None and taken(whole, "train.ema=null") is None and taken(file, "train.ema=0.5") == 0.5
