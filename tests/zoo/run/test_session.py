"""A run in this process: its micro-batches, and which evaluation is the best."""

import os

import numpy as np
import pytest

import zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.run.checkpoint import load_checkpoint
from zoo.run.evaluation import Evaluations

RECIPE = ROOT / "configs/resnet50_demo.yaml"


@pytest.fixture
def run(tmp_path):
    """Return a function that trains, or goes on, and returns the run's folder."""

    def train(name, resume=False, max_steps=None, **changes):
        settings = {**api_cases.RUN, "data.root": str(tmp_path / "shapes"), **changes}
        place = {"resume": tmp_path / name} if resume else {"out": tmp_path / name}
        return zoo.Run(RECIPE, settings, max_steps=max_steps, **place).train().folder

    return train


def test_a_run_of_micro_batches_goes_on_bit_for_bit(run):
    changes = {"train.batch": 8, "train.accumulate": 2}
    whole = load_checkpoint(run("whole", **changes) + "/checkpoints/last")[0]
    run("stopped", max_steps=3, **changes)
    resumed = load_checkpoint(run("stopped", resume=True, **changes) + "/checkpoints/last")[0]
    assert resumed.keys() == whole.keys() and all(np.array_equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.parametrize("accuracies, best", [((0.5, 0.5, 0.5), 2), ((0.4, 0.5, 0.5), 4), ((0.4, 0.3, 0.5), 6)])
def test_the_first_of_equal_evaluations_is_the_best(run, monkeypatch, accuracies, best):
    found = iter(accuracies)

    def measure(evaluations, metrics, report):
        accuracy = next(found)
        return {"accuracy": accuracy, "top1": accuracy, "loss": 1.0, "samples": 16, "bad": 0, "seconds": 0.1}

    monkeypatch.setattr(Evaluations, "measure", measure)
    folder = run("run", **{"train.eval_every": 2})
    assert os.path.basename(os.path.realpath(f"{folder}/checkpoints/best")) == f"step-{best:08d}"
