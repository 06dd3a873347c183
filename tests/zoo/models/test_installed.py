"""A model of an installed package: that of docs/extending.md is trained, continued, loaded and applied."""

import importlib
import re
import sys

import numpy as np
import pytest

import zoo
from tests.helpers.paths import ROOT
from tests.helpers.training import events, run_here
from zoo import models
from zoo.data.errors import UserError

SMALL = {
    "data.size": 32,
    "data.train_images": 16,
    "data.val_images": 8,
    "data.workers": 0,
    "train.epochs": "null",
    "train.steps": 4,
    "train.batch": 4,
    "train.global_batch": "null",
    "train.log_every": 1,
    "train.save_every": "2 steps",
    "optim.warmup": "0 steps",
    "optim.schedule": "constant",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install the code of docs/extending.md; return its folder."""
    blocks = re.findall(r"```\w+\n# (\S+)\n(.*?)```", (ROOT / "docs/extending.md").read_text(encoding="utf-8"), re.S)
    files = dict(blocks)
    assert list(files) == ["pyproject.toml", "mynet/spec.py", "mynet/torch.py"]
    assert len(files["mynet/spec.py"].splitlines()) <= 30
    group, entry = files.pop("pyproject.toml").splitlines()
    info = tmp_path / "mynet-1.0.dist-info"
    for folder in (tmp_path / "mynet", info):
        folder.mkdir()
    (tmp_path / "mynet" / "__init__.py").touch()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mynet\nVersion: 1.0\n")
    name = re.fullmatch(r'\[project.entry-points."(.*)"\]', group)[1]
    (info / "entry_points.txt").write_text(f"[{name}]\n{entry.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    models.packages.cache_clear()
    yield tmp_path
    models.packages.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] == "mynet"]:
        del sys.modules[module]


def train(folder, *words, **changes):
    settings = {**SMALL, "model.name": "mynet", "data.root": folder.parent / "shapes", **changes}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    recipe = ["-c", str(ROOT / "configs/resnet50_demo.yaml"), *pairs, "--device", "cpu", "--out", folder]
    return run_here(["python", "train.py", *(words or recipe)])


def test_the_model_of_the_documentation(package):
    pytest.importorskip("torch")
    whole, cut = package / "whole", package / "cut"
    ran = train(whole, **{"model.width": 8})
    assert ran.returncode == 0, ran.stderr
    assert train(cut, **{"model.width": 8, "train.steps": 2}).returncode == 0
    ran = train(cut, "--resume", cut, "-o", "train.steps=4")
    assert ran.returncode == 0, ran.stderr
    losses = [[event["loss"] for event in events(folder) if event["event"] == "train"] for folder in (whole, cut)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]
    loaded = zoo.load(whole, device="cpu")
    assert type(loaded.model).__module__ == "mynet.torch" and loaded.arch.width == 8
    assert loaded.model.head.weight.shape == (8, 8) and len(loaded.class_names) == 8
    predictions = loaded.predict(np.zeros((40, 50, 3), np.uint8)).probabilities
    assert sum(predictions) == pytest.approx(1, abs=1e-5)


def test_names_that_a_spec_may_leave_out(package):
    spec = models.load_spec("mynet")
    arch = models.resolve_arch(spec, spec.Arch(), [], 5)
    assert arch == spec.Arch(num_classes=5, width=16) and spec.flops(arch, (32, 32, 3)) == 0
    assert all(hasattr(spec, name) for name in models.SPEC_NAMES)
    drawn = {name: spec.initializer(arch, name, shape).distribution for name, shape in spec.shapes(arch).items()}
    assert drawn == {
        "conv.weight": "normal",
        "norm.weight": "ones",
        "norm.bias": "zeros",
        "norm.running_mean": "zeros",
        "norm.running_var": "ones",
        "head.weight": "uniform",
        "head.bias": "zeros",
    }
    with (package / "mynet" / "spec.py").open("a") as file:
        file.write("\n\ndef flops(arch, shape):\n    return 7\n")
    importlib.reload(sys.modules["mynet.spec"])
    assert models.load_spec("mynet").flops(arch, (32, 32, 3)) == 7


def test_mistakes(package):
    with pytest.raises(UserError, match="the model mynet has no implementation for 'paddle'; choose one of: torch"):
        models.load_model_class("mynet", "paddle")
    with pytest.raises(UserError, match="there is no mynet/onnx.py"):
        models.require_graph("mynet")
    (package / "mynet" / "spec.py").write_text("from nowhere import Arch\n")
    with pytest.raises(UserError, match="the model mynet of the package mynet cannot be imported: .*'nowhere'"):
        models.load_spec("mynet")
    (package / "mynet" / "spec.py").write_text("Arch = None\n")
    importlib.invalidate_caches()
    with pytest.raises(UserError, match="mynet/spec.py lacks shapes; define"):
        models.load_spec("mynet")


def test_an_installed_package_cannot_replace_a_model_of_the_zoo(package):
    entry_points = package / "mynet-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text(entry_points.read_text() + "resnet = mynet\n")
    models.packages.cache_clear()
    assert models.packages()["resnet"] == "zoo.models.resnet" and "mynet" in models.list_models()
