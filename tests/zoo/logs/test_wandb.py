"""Weights & Biases, with a stand-in for its package, which is not installed here; and the flag --wandb."""

import sys
from types import ModuleType

import numpy as np
import pytest

from zoo.data.errors import UserError
from zoo.logs import wandb
from zoo.logs.viewers import Histogram
from zoo.run import cli

RECIPE = ["-c", "configs/resnet50_demo.yaml"]


class Run:
    def __init__(self, calls, id):
        self.calls, self.id = calls, id

    def define_metric(self, name, step_metric):
        self.calls.append(("define_metric", name, step_metric))

    def log(self, values):
        self.calls.append(("log", values))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def package(monkeypatch):
    """A module `wandb` that records calls; `refusal` is what its init raises."""
    module = ModuleType("wandb")
    module.calls, module.refusal = [], None
    module.Error = type("Error", (Exception,), {})
    module.Image = lambda pixels: ("image", pixels.shape)
    module.Histogram = lambda np_histogram: ("histogram", *(values.tolist() for values in np_histogram))

    def init(**options):
        module.calls.append(("init", options))
        if module.refusal:
            raise module.Error(module.refusal)
        return Run(module.calls, options["id"] or "abc123")

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_a_run_has_the_recipe_and_is_continued_by_its_id(package, tmp_path):
    folder = str(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    wandb.WeightsAndBiases(folder, "faces", {"optim.lr": 0.1}).close()
    wandb.WeightsAndBiases(folder, "faces", {"optim.lr": 0.2})
    own = {"project": "faces", "name": "mine", "resume": "allow", "dir": folder}
    assert package.calls == [
        ("init", {**own, "id": None, "config": {"optim.lr": 0.1}}),
        ("define_metric", "*", "step"),
        ("finish",),
        ("init", {**own, "id": "abc123", "config": {"optim.lr": 0.2}}),
        ("define_metric", "*", "step"),
    ]


def test_numbers_pictures_and_histograms(package, tmp_path):
    viewer = wandb.WeightsAndBiases(str(tmp_path), "faces", {})
    package.calls.clear()
    viewer({"event": "train", "time": 1.0, "step": 20, "loss": 0.5, "power": None, "step_ms": {"p50": 1.5}})
    viewer({"event": "save", "time": 2.0, "step": 20, "path": "x"})
    viewer({"event": "eval", "time": 3.0, "step": 20, "top1": 0.25, "class_accuracy": {"cat": 1.0}})
    histogram = Histogram(np.array([3, 1]), np.array([-1.0, 0.0, 2.0]))
    viewer.show(20, {"images/pairs": np.zeros((2, 5, 3), np.uint8)}, {"weights/fc": histogram})
    viewer.show(20, {}, {})
    assert [values for _, values in package.calls] == [
        {"step": 20, "train/loss": 0.5, "train/step_ms/p50": 1.5},
        {"step": 20, "eval/top1": 0.25, "eval/class_accuracy/cat": 1.0},
        {
            "step": 20,
            "images/pairs": ("image", (2, 5, 3)),
            "weights/fc": ("histogram", [3, 1], [-1.0, 0.0, 2.0]),
        },
    ]


def test_a_refusal_of_the_package_tells_what_to_do(package, tmp_path):
    package.refusal = "No API key configured"
    with pytest.raises(
        UserError, match=r"--wandb: No API key configured \(`wandb login`, or export WANDB_MODE=offline\)"
    ):
        wandb.WeightsAndBiases(str(tmp_path), "faces", {})


def test_the_flag(package, monkeypatch):
    monkeypatch.setattr(wandb.importlib.util, "find_spec", lambda name: package)
    assert cli.read(cli.parse([*RECIPE, "--wandb", "faces"])).wandb == "faces"
    assert cli.read(cli.parse(RECIPE)).wandb is None


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--wandb", "x"], "--wandb: the package is not installed: pip install wandb"),
        (["--wandb", ""], "--wandb: needs the name of a project"),
        (["--wandb", "x", "--speed"], "--wandb: logs training, and --speed trains nothing"),
        (["--wandb", "x", "--eval-only", "--resume"], "--wandb: logs training, and --eval-only trains nothing"),
    ],
)
def test_errors_before_a_run(arguments, message, monkeypatch):
    monkeypatch.setattr(wandb.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        cli.read(cli.parse([*RECIPE, *arguments]))
