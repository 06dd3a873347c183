"""tools/bench.py stream: small models, and a stand-in for the copy of upstream's repository."""

import json
import re
import sys

import pytest

from zoo.bench.commands import bench

pytest.importorskip("onnxruntime")
SMALL = ("-n", "2", "-o", "data.size=32")
DEMO = """
import torch
from torch import nn
from tests.bench.timing.test_streaming import online_copy

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
    report = tmp_path / "stream.json"
    assert bench.main(["stream", *SMALL, "--upstream", clones(), "--json", str(report)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[1:]] == [
        "| PyTorch",
        "| ONNX Runtime",
        "| mit-han-lab's online_demo in PyTorch",
    ]
    calls = json.loads(report.read_text(encoding="utf-8"))["calls"]
    assert {len(each["seconds"]) for each in calls.values()} == {2}


def test_a_resnet(capsys):
    assert bench.main(["stream", *SMALL, "-o", "model.name=tsm", "-o", "model.depth=18", "-o", "model.width=8"]) == 0
    assert "tsm, 32 x 32" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["-n", "0"], "--count: must be at least 1"),
        (["--upstream", "nowhere"], "--upstream nowhere: no such folder"),
        (["-o", "model.shift_direction=future"], "model.shift_direction: .* future"),
    ],
)
def test_what_cannot_be_timed(words, message, capsys):
    assert bench.main(["stream", *SMALL, *words]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_contender_that_computes_something_else_is_refused(clones, capsys):
    assert bench.main(["stream", *SMALL, "--upstream", clones("+ 1")]) == 2
    assert "mit-han-lab's online_demo in PyTorch differs from PyTorch by" in capsys.readouterr().err


def test_upstream_has_one_model(clones, capsys):
    assert bench.main(["stream", *SMALL, "-o", "model.name=tsm", "-o", "model.width=8", "--upstream", clones()]) == 2
    assert "its online demo is a MobileNetV2, and not tsm" in capsys.readouterr().err
