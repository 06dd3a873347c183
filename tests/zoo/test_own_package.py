"""Model, loss, optimizer, augmentation, data set and task of an installed package, without a change of the zoo.

The package is that of docs/extending.md, in a folder on the path, as it would be in site-packages.
"""

import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.package import documented, forget, install
from tests.helpers.paths import ROOT
from tests.helpers.training import events
from zoo import data, losses, optim, tasks
from zoo.data import augment, plugins
from zoo.data.augment.steps import Steps
from zoo.data.demo import shapes
from zoo.data.errors import UserError
from zoo.optim.base import Math
from zoo.predict.predictors import find_predictor
from zoo.trainer import numpy_ops

torch = pytest.importorskip("torch")
SMALL = {
    "data.size": 32,
    "data.workers": 1,
    "train.epochs": "null",
    "train.steps": 3,
    "train.batch": 4,
    "train.global_batch": "null",
    "train.log_every": 1,
    "optim.warmup": "0 steps",
    "optim.schedule": "constant",
}
PADDLE = """\
from paddle import nn


class Model(nn.Layer):
    def __init__(self, arch):
        super().__init__()
        self.conv = nn.Conv2D(3, arch.width, 3, 2, 1, bias_attr=False)
        self.norm = nn.BatchNorm2D(arch.width)
        self.head = nn.Linear(arch.width, arch.num_classes)

    def forward(self, image):
        return self.head(nn.functional.relu(self.norm(self.conv(image))).mean((2, 3)))
"""
ONNX = """\
def build(graph, arch, image):
    x = graph.relu(graph.batch_norm("norm", graph.conv("conv", image, 2, 1)))
    return graph.linear("head", graph.flatten(graph.global_mean(x)))
"""
TASK = """\
from dataclasses import dataclass
from typing import ClassVar

from mynet import poly1
from zoo.tasks.classify import PRIMARY, Metric, output, protocol
from zoo.trainer.objectives import Classification as Objective


@dataclass(frozen=True, kw_only=True)
class Settings(poly1.Loss):
    task: ClassVar[str] = "grade"


Loss = Settings
"""
GROUPS = '[project.entry-points."zoo.tasks"]\ngrade = "mynet.grade"\n'
GROUPS += '[project.entry-points."zoo.losses.grade"]\npoly1 = "mynet.grade"\n'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install the package, with further files; return its folder, in which there are photos, too."""
    files = documented()
    files |= {"mynet/paddle.py": PADDLE, "mynet/onnx.py": ONNX, "mynet/grade.py": TASK}
    files["pyproject.toml"] += GROUPS
    install(tmp_path, files=files)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    forget()


def options(package, **changes):
    photos = package / "photos"
    if not photos.exists():
        shapes.make(str(photos), 16, 8)
    settings = {**SMALL, "data.root": photos, **changes}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return ["-c", package / "mynet.yaml", "--device", "cpu", *pairs]


def begin_of(folder):
    return next(event for event in events(folder) if event["event"] == "begin")


def test_a_recipe_of_the_package_trains_and_its_model_is_applied(package):
    """With a data worker, a process of its own, and a resume."""
    assert call_zoo("train", *options(package), "--out", "run", "--max-steps", 2) == 0
    assert call_zoo("train", "--resume", "run") == 0
    begin = begin_of("run")
    assert (begin["model"], begin["data"], begin["optimizer"]["name"]) == ("mynet", "photos", "qhm")
    assert begin["optimizer"]["nu"] == 0.7 and begin["protocol"] == "photos/32-of-36"
    seen = [event["loss"] for event in events("run") if event["event"] == "train"]
    assert len(seen) == 3 and np.isfinite(seen).all()
    loaded = zoo.load("run", device="cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(photo := "photo.png")
    np.save("pixels.npy", pixels)
    np.save("numbers.npy", np.zeros((2, 3)))
    np.save("objects.npy", np.array([None]))
    assert loaded.predict([photo, "pixels.npy"]) == [None, None]  # after three updates
    features = loaded.features([photo, "pixels.npy"])
    assert features[0] == pytest.approx(features[1], rel=1e-5) and features[0].any()
    files = (photo, "pixels.npy", "numbers.npy", "objects.npy")
    assert call_zoo("predict", *files, "--weights", "run", "--device", "cpu", "--out", "out", "--workers", 1) == 1
    rows = list(map(json.loads, (package / "out/predictions.jsonl").read_text().splitlines()))
    assert [row.get("answer", "none") for row in rows] == [None, None, "none", "none"]
    assert rows[2]["error"] == "is no uint8 (H, W, 3), but float64 (2, 3)"
    assert rows[3]["error"].startswith("cannot be read: Object arrays")


def test_the_predictor_answers_where_the_model_is_sure(package):
    predictor, model = find_predictor("classify", "photos"), SimpleNamespace(class_names=("disk", "ring", "star"))
    for logits, answer in (([[0, 3, 0], [0, 1, 0]], "ring"), ([[0.1, 0.2, 0.0]], None)):
        logits = np.array(logits, np.float32)
        line, row = predictor.describe(model, "photo.png", None, logits, None, "out/photo")
        assert predictor.result(model, "photo.png", None, logits) == row["answer"] == answer
        assert line == answer or (line, answer) == ("unsure", None)


def test_the_loss_and_the_optimizer_follow_their_formulas(package):
    loss, rng = losses.load_loss("classify", "poly1")(epsilon=2.0), np.random.default_rng(0)
    logits, labels = rng.standard_normal((5, 3)), np.array([0, 2, 1, 1, 0])
    p = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[np.arange(5), labels]
    assert loss.total(numpy_ops, logits, labels) == pytest.approx((-np.log(p) + 2 * (1 - p)).sum(), rel=1e-12)
    weight, gradient, old = rng.standard_normal((3, 4))
    step, (new,) = optim.load_settings("qhm")().direction(Math(numpy_ops), weight, gradient, (old,), 0.1, 1)
    slope = gradient + 0.1 * weight
    assert new == pytest.approx(0.9 * old + 0.1 * slope) and step == pytest.approx(0.3 * slope + 0.7 * new)


def test_a_task_of_the_package_trains(package):
    """Its objective and its losses are those of the package, too."""
    spec = package / "mynet/spec.py"
    spec.write_text(spec.read_text() + '\nTASK = "grade"\n')
    assert tasks.list_tasks() == ["classify", "face", "grade", "multilabel", "segment"]
    assert call_zoo("train", *options(package, **{"data.workers": 0}), "--out", "run") == 0
    assert begin_of("run")["task"] == "grade" and zoo.load("run", device="cpu").recipe["task.loss"] == "poly1"


def test_nothing_is_imported_until_it_is_named(package):
    known = [data.names(), augment.names(), tasks.list_tasks(), plugins.names("zoo.optimizers", optim.OPTIMIZERS)]
    assert [name in names for name, names in zip(("photos", "channel_shuffle", "grade", "qhm"), known)] == [True] * 4
    assert optim.load_settings("sgd") and "mynet" not in sys.modules


def test_a_name_of_two_packages_is_an_error_and_one_of_the_zoo_is_not_replaced(package):
    entries = '[project.entry-points."zoo.optimizers"]\nqhm = "other"\nsgd = "other"\n'
    install(package, "other", {"pyproject.toml": entries})
    forget()
    with pytest.raises(UserError, match="optimizer qhm is in several installed packages: mynet and other; uninstall"):
        optim.load_settings("qhm")
    assert optim.load_settings("sgd").__module__ == "zoo.optim.sgd" and losses.load_loss("classify", "poly1")


@pytest.mark.parametrize(
    "file, old, new, find, message",
    [
        ("qhm", '= "qhm"', '= "sgd"', lambda: optim.load_settings("qhm"),
         'qhm.py: Settings needs `name: ClassVar.*"qhm"`'),
        ("qhm", "from zoo.optim", "from zoo.nowhere", lambda: optim.load_settings("qhm"),
         "the optimizer qhm of the package mynet.qhm cannot be imported: No module named 'zoo.nowhere'"),
        ("poly1", "class Loss", "class Poly", lambda: losses.load_loss("classify", "poly1"),
         "poly1.py lacks Loss, which the loss poly1 needs"),
        ("poly1", "import classify", "import segment as classify", lambda: losses.load_loss("classify", "poly1"),
         'poly1.py: Loss needs `loss: str = "poly1"`, and must be one of the task classify'),
        ("channels", '"channel_shuffle": ALL', '"shuffle": ALL', lambda: Steps.parse(["channel_shuffle"]),
         "channels.py: KINDS has no channel_shuffle"),
        ("photos", "describe, load =", "load, _ =", lambda: data.find("photos"),
         "photos.py lacks describe, which the data set photos needs"),
        ("photos", "def predictor", "def other", lambda: find_predictor("classify", "photos"),
         r"no predictor for the task classify and the data set photos: .* predictor\(\)"),
        ("grade", "import PRIMARY, Metric", "import PRIMARY as P, Metric", lambda: tasks.load_task("grade"),
         "grade.py lacks PRIMARY, which the task grade needs"),
    ],
)  # fmt: skip
def test_mistakes(package, file, old, new, find, message):
    path = package / f"mynet/{file}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=message):
        find()


def run(*words):
    words = [sys.executable, "-m", "zoo", *map(str, words)]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=230, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("paddle"), reason="compares two frameworks")
def test_two_frameworks_of_the_package_agree(package):
    done = run("compare", *options(package, **{"data.workers": 0}), "--frameworks", "torch,paddle", "--steps", 2)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.slow
def test_ranks_train_and_the_model_is_exported(package):
    done = run("launch", "1x2", *options(package), "--out", "run", "--logs", "logs")
    assert done.returncode == 0, done.stderr + done.stdout
    done = run("export", "run", "--out", "mynet.onnx")
    assert done.returncode == 0, done.stderr + done.stdout
