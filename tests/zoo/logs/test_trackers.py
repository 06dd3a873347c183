"""Experiment trackers by stand-ins that record calls: what their packages take was tried with wandb 0.31, MLflow 3.17,
SwanLab 0.10 and trackio 0.43, which are not installed here.
"""

import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import CONFIGS
from tests.zoo import api_cases
from zoo.data.errors import UserError
from zoo.logs.trackers import TRACKERS
from zoo.logs.viewers import Histogram

INITS = {
    "wandb": {"name": "mine", "id": None, "resume": "allow"},
    "swanlab": {"name": "mine", "id": None, "resume": "allow"},
    "trackio": {"resume": "allow"},
}
TRAIN = {"event": "train", "time": 1.0, "step": 20, "loss": 0.5, "power": None, "step_ms": {"p50": 1.5}}
EVAL = {"event": "eval", "time": 3.0, "step": 20, "top1": 0.25, "class_accuracy": {"cat (big)": 1.0}}


@pytest.fixture(params=TRACKERS)
def package(request, monkeypatch):
    """A module that records calls as (name, arguments, options); `refusal` is what its next call raises."""
    module = ModuleType(request.param)
    module.__spec__ = ModuleSpec(request.param, None)
    module.calls, module.refusal = [], None
    module.Image = lambda pixels: ("image", pixels.shape)
    if request.param != "swanlab":
        module.Histogram = lambda np_histogram: ("histogram", *(values.tolist() for values in np_histogram))

    def call(name, /, *arguments, **options):
        if module.refusal:
            raise RuntimeError(module.refusal)
        module.calls.append((name, arguments, options))
        return SimpleNamespace(
            id=options.get("id") or "abc", info=SimpleNamespace(run_id=options.get("run_id") or "abc")
        )

    methods = ["set_experiment", "start_run", "log_params", "log_metrics", "log_image", "end_run"]
    for name in methods if request.param == "mlflow" else ["init", "define_metric", "log", "finish"]:
        setattr(module, name, partial(call, name))
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine").mkdir()
    return str(tmp_path / "mine")


def test_a_resumed_run_goes_on_in_the_same_one(package, folder):
    name = package.__name__
    TRACKERS[name](folder, "faces", {"optim.lr": 0.1}).close()
    first = list(package.calls)
    package.calls.clear()
    TRACKERS[name](folder, "faces", {"optim.lr": 0.2})
    if name == "mlflow":
        assert first[:2] == [
            ("set_experiment", ("faces",), {}),
            ("start_run", (), {"run_id": None, "run_name": "mine"}),
        ]
        assert first[2:] == [("log_params", ({"optim.lr": 0.1},), {}), ("end_run", (), {})]
        assert package.calls[1:] == [("start_run", (), {"run_id": "abc", "run_name": "mine"})]
        return
    (_, _, begun), (_, _, continued) = first[0], package.calls[0]
    assert {**begun, "project": "faces", "config": {"optim.lr": 0.1}, **INITS[name]} == begun
    assert begun.get("dir") == (folder if name == "wandb" else None)
    changed = {key: value for key, value in continued.items() if begun[key] != value}
    assert changed == {"config": {"optim.lr": 0.2}, **({} if name == "trackio" else {"id": "abc"})}
    assert first[-1] == ("finish", (), {}) and (name != "trackio" or begun["name"].startswith("mine-"))


def test_numbers_pictures_and_histograms(package, folder):
    name = package.__name__
    viewer = TRACKERS[name](folder, "faces", {})
    package.calls.clear()
    for event in (TRAIN, {"event": "save", "time": 2.0, "step": 20, "path": "x"}, EVAL):
        viewer(event)
    histogram = Histogram(np.array([3, 1]), np.array([-1.0, 0.0, 2.0]))
    viewer.show(20, {"images/pairs": np.zeros((2, 5, 3), np.uint8)}, {"weights/fc": histogram})
    viewer.show(20, {}, {})
    key = "cat _big_" if name == "mlflow" else "cat (big)"
    values = [
        {"train/loss": 0.5, "train_step_ms/p50": 1.5},
        {"val/top1": 0.25, f"val_class_accuracy/{key}": 1.0},
        {"images/pairs": ("image", (2, 5, 3)), "weights/fc": ("histogram", [3, 1], [-1.0, 0.0, 2.0])},
    ]
    if name == "mlflow":
        *logged, (drawn, (pixels,), options) = package.calls
        assert logged == [("log_metrics", (each,), {"step": 20}) for each in values[:2]]
        assert (drawn, pixels.shape, options) == ("log_image", (2, 5, 3), {"key": "images/pairs", "step": 20})
        return
    if name == "swanlab":
        del values[2]["weights/fc"]
    wandb = name == "wandb"
    options = {} if wandb else {"step": 20}
    assert package.calls == [("log", ({**each, **({"step": 20} if wandb else {})},), options) for each in values]


def test_a_run_goes_on_without_a_tracker_that_fails(package, folder, capsys):
    viewer = TRACKERS[package.__name__](folder, "faces", {})
    package.refusal = "no connection"
    viewer(TRAIN)
    viewer(EVAL)
    viewer.close()
    error = capsys.readouterr().err
    assert error == f"warning: --track {package.__name__}: no connection; the run goes on without it\n"


def test_a_package_that_refuses(package, folder):
    package.refusal = "nobody is logged in"
    with pytest.raises(UserError, match=f"^--track {package.__name__}: nobody is logged in"):
        TRACKERS[package.__name__](folder, "faces", {})


def test_a_run_that_is_refused_leaves_no_folder(package, tmp_path, capsys):
    settings = {**api_cases.RUN, "data.root": str(tmp_path / "shapes")}
    words = [word for key, value in settings.items() for word in ("-o", f"{key}={'null' if value is None else value}")]
    package.refusal = "nobody is logged in"
    line = ["train", "-c", CONFIGS / "resnet50_demo.yaml", *words, "--track", package.__name__, "--out"]
    assert call_zoo(*line, tmp_path / "run") == 2
    assert "nobody is logged in" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--track", "mlfow"],
            "--track mlfow: there is no 'mlfow'; there are: wandb, mlflow, swanlab, trackio; did you",
        ),
        (["--track", "wandb", "--track", "wandb:x"], "--track wandb:x: wandb is given twice"),
        (["--track", "mlflow:faces"], "--track mlflow:faces: the package is not installed: pip install mlflow"),
        (["--track", "wandb", "--speed"], "--track: logs training, and --speed trains nothing"),
    ],
)
def test_options_that_are_wrong(monkeypatch, capsys, words, message):
    present = ModuleType("wandb")
    present.__spec__ = ModuleSpec("wandb", None)
    monkeypatch.setitem(sys.modules, "wandb", present)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert call_zoo("train", "-c", CONFIGS / "tsm_demo.yaml", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
