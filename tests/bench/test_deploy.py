"""`zoo bench deploy` and `zoo bench stream`, on small models and a stand-in for the copy of upstream's repository."""

import json
import re
import sys

import numpy as np
import pytest

from zoo import cli
from zoo.bench.commands import deploy
from zoo.bench.commands.deploy import Calls
from zoo.bench.interleave import Seconds

SMALL = {
    "tsm_k400": ["model.depth=18", "model.width=4", "data.size=32", "data.segments=2"],
    "resnet50_imagenet": ["model.depth=18", "model.width=4", "data.size=32"],
    "deeplabv3plus_cityscapes": ["model.depth=18", "model.width=8", "model.head_width=8", "data.crop=[32,64]"],
    "arcface_ms1m": ["model.depth=18", "model.width=4", "data.size=32"],
}
STREAM = ("bench", "stream", "-n", "2", "-o", "data.size=32")
DEMO = """
import torch
from torch import nn
from tests.bench.test_deploy import online_copy

class MobileNetV2(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.net = online_copy(classes)

    def state_dict(self):
        return self.net.state_dict()

    def load_state_dict(self, tensors):
        self.net.load_state_dict(tensors)

    def forward(self, x, *state):
        logits, state = self.net.forward_frame(x, state)
        return (logits {fault}, *state)
"""


def test_figures_of_calls():
    calls = Calls(2, [Seconds(float(number), 3.0) for number in range(100, 0, -1)])
    assert (calls.percentile(50), calls.percentile(99)) == (51.0, 100.0)
    assert calls.cpu_per_sample == 1.5 and calls.samples_per_s == pytest.approx(2 / 50.5)


def test_a_turn_begins_with_a_call_that_does_not_count():
    order, pixels = [], np.zeros((2, 4, 4, 3), np.uint8)
    contenders = {name: lambda pixels, name=name: order.append(name) for name in "ab"}
    found = deploy.time_calls(contenders, pixels, 2 * deploy.BLOCK, 1e9)
    turn_a, turn_b = ["a"] * (deploy.BLOCK + 1), ["b"] * (deploy.BLOCK + 1)
    assert order == [*turn_a, *turn_b, *turn_b, *turn_a]
    assert [(calls.samples, len(calls.seconds)) for calls in found.values()] == [(2, 2 * deploy.BLOCK)] * 2


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(name, marks=[] if name == "resnet50_imagenet" else [pytest.mark.slow]) for name in deploy.CLASSES],
)
def test_exported_models(recipe, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    words = [word for pair in SMALL[recipe] for word in ("-o", pair)]
    out = tmp_path / "a.json"
    words += ["--models", recipe, "-n", "2", "--batch", "2", "--json", str(out)]
    assert cli.main(["bench", "deploy", *words]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[2].strip() for row in rows[2:]] == ["PyTorch", "ONNX Runtime fp32", "ONNX Runtime int8"]
    assert recipe in rows[2][1] and "GFLOPs" in rows[2][1]
    (model,) = json.loads(out.read_text())["models"]
    assert [len(row["one"]["seconds"]) >= 2 for row in model["rows"]] == [True] * 3
    assert model["rows"][2]["size"] < model["rows"][1]["size"]


def test_parameters_and_operations_are_those_of_the_published_model(tmp_path):
    """torchvision counts 25,557,032 parameters and 4.09 G multiply-adds of its ResNet50."""
    sized = deploy.build("resnet50_imagenet", [], str(tmp_path), 1000)
    assert (sized.parameters, sized.shape) == (25_557_032, (224, 224, 3))
    assert sized.flops == pytest.approx(2 * 4.09e9, rel=0.005)


def online_copy(classes):
    """Return this zoo's model, whose names the conversion leaves alone, in place of upstream's."""
    from zoo.models.tsm_mobilenet_v2.spec import Arch
    from zoo.models.tsm_mobilenet_v2.torch import Model

    return Model(Arch(num_classes=classes, shift_direction="causal"))


@pytest.fixture
def clones(tmp_path):
    """Return a function that writes the stand-in; fault: what it adds to its logits."""

    def write(fault=""):
        folder = tmp_path / "clones/temporal-shift-module/online_demo"
        folder.mkdir(parents=True)
        (folder / "mobilenet_v2_tsm.py").write_text(DEMO.format(fault=fault), encoding="utf-8")
        return str(tmp_path / "clones")

    yield write
    sys.modules.pop("mobilenet_v2_tsm", None)


def test_the_frames_of_all_are_timed(clones, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "stream.json"
    assert cli.main([*STREAM, "--upstream", clones(), "--json", str(path)]) == 0
    names = ["PyTorch", "ONNX Runtime", "mit-han-lab's online_demo in PyTorch"]
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows[2:] == names
    calls = json.loads(path.read_text())["calls"]
    assert list(calls) == names and {len(each["seconds"]) for each in calls.values()} == {2}


@pytest.mark.parametrize(
    "words, message",
    [
        (("bench", "deploy", "--models", "resnet51"), "--models: .*resnet51"),
        (("bench", "deploy", "--seconds", "0"), "--seconds"),
        (("bench", "deploy", "-o", "model.widht=3"), "unknown key"),
        ((*STREAM, "--upstream", "nowhere"), "--upstream nowhere"),
        ((*STREAM, "-o", "model.shift_direction=future"), "model.shift_direction: .* future"),
        ((*STREAM, "-o", "model.name=tsm", "-o", "model.width=8", "--upstream", "."), "MobileNetV2, and not tsm"),
    ],
)
def test_what_is_refused(words, message, capsys):
    assert cli.main(list(words)) == 2
    assert re.search(message, capsys.readouterr().err)
