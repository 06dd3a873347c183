"""tools/bench.py deploy: turns with clocks that are known, the table, and the command on small models."""

import json
import re

import numpy as np
import pytest

from zoo.bench.commands import bench
from zoo.bench.timing.deploy import models, report
from zoo.bench.timing.deploy.report import Measured, Row
from zoo.bench.timing.deploy.turns import BLOCK, Calls, measure

PIXELS = np.zeros((2, 4, 4, 3), np.uint8)
SMALL = {
    "tsm_k400": ["model.depth=18", "model.width=4", "data.size=32", "data.segments=2"],
    "resnet50_imagenet": ["model.depth=18", "model.width=4", "data.size=32"],
    "deeplabv3plus_cityscapes": ["model.depth=18", "model.width=8", "model.head_width=8", "data.crop=[32,64]"],
    "arcface_ms1m": ["model.depth=18", "model.width=4", "data.size=32"],
}


class Machine:
    """Contenders that take known times, on a clock that they move."""

    def __init__(self, seconds):
        self.now, self.cpu, self.order = 0.0, 0.0, []
        self.contenders = {name: self.contender(name, times) for name, times in seconds.items()}

    def contender(self, name, seconds):
        def forward(pixels):
            self.order.append(name)
            self.now += seconds
            self.cpu += 2 * seconds

        return forward

    def measure(self, count, seconds):
        return measure(self.contenders, PIXELS, count, seconds, lambda: self.now, lambda: self.cpu)


def test_turns():
    """After a call that allocates, each turn has one that does not count; the order of the turns alternates."""
    machine = Machine({"a": 0.05, "b": 0.025})
    found = machine.measure(2 * BLOCK, 1e9)
    turn_a, turn_b = ["a"] * (BLOCK + 1), ["b"] * (BLOCK + 1)
    assert machine.order == ["a", "b", *turn_a, *turn_b, *turn_b, *turn_a]
    for name, seconds in (("a", 0.05), ("b", 0.025)):
        calls = found[name]
        assert calls.seconds == pytest.approx([seconds] * 2 * BLOCK)
        assert calls.cpu_per_sample == pytest.approx(seconds)  # 2 threads, 2 samples
        assert calls.samples_per_s == pytest.approx(2 / seconds)


def test_the_time_is_limited():
    assert len(Machine({"a": 0.1}).measure(1000, 0.3 * BLOCK)["a"].seconds) == 3 * BLOCK
    assert len(Machine({"a": 0.1}).measure(1000, 0.1)["a"].seconds) == 2 * BLOCK  # two rounds at least
    assert len(Machine({"a": 0.1}).measure(3, 1e9)["a"].seconds) == 3
    assert Machine({"a": 3.0, "b": 0.1}).measure(2, 1e9)["b"].seconds == pytest.approx([0.1] * 2)  # turns of one call


def test_percentiles():
    calls = Calls(1, [float(number) for number in range(100, 0, -1)])
    assert (calls.percentile(50), calls.percentile(99)) == (51.0, 100.0)


def test_table():
    rows = [
        Row("PyTorch", 4_000_000, Calls(1, [0.04] * 3, 0.24), Calls(4, [0.1], 0.2)),
        Row("ONNX Runtime fp32", 3_900_000, Calls(1, [0.03] * 3, 0.18), Calls(4, [0.08], 0.2)),
    ]
    lines = report.table([Measured("resnet50_imagenet", (224, 224, 3), 25_557_032, 8_180_000_000, rows)], 4)
    assert lines[0].startswith("| model, input | computed by | file, MB |") and "samples/s, batch 4" in lines[0]
    assert {line.count("|") for line in lines} == {11}
    assert lines[2] == (
        "| resnet50_imagenet, 224 x 224: 25.6 M parameters, 8.2 GFLOPs | PyTorch | 4.0 | 40.0 | 40.0 | 1.00 | 80.0 "
        "| 1.00 | 40 | 1.00 |"
    )
    assert lines[3] == "|  | ONNX Runtime fp32 | 3.9 | 30.0 | 30.0 | 0.75 | 60.0 | 0.75 | 50 | 1.25 |"


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(name, marks=[] if name == "resnet50_imagenet" else [pytest.mark.slow]) for name in models.CLASSES],
)
def test_the_command(recipe, tmp_path, capsys):
    words = [word for pair in SMALL[recipe] for word in ("-o", pair)]
    out = tmp_path / "a.json"
    assert bench.main(["deploy", "--models", recipe, "-n", "2", "--batch", "2", "--json", str(out), *words]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^\| {recipe}, .* M parameters, .* GFLOPs \| PyTorch \|", printed, re.MULTILINE)
    assert "|  | ONNX Runtime fp32 |" in printed and "|  | ONNX Runtime int8 |" in printed
    (model,) = json.loads(out.read_text())["models"]
    assert [len(row["one"]["seconds"]) >= 2 for row in model["rows"]] == [True] * 3
    assert model["rows"][2]["size"] < model["rows"][1]["size"]


def test_parameters_and_operations_are_those_of_the_published_model(tmp_path):
    """torchvision counts 25,557,032 parameters and 4.09 G multiply-adds of its ResNet50."""
    sized = models.build("resnet50_imagenet", [], str(tmp_path))
    assert (sized.parameters, sized.shape) == (25_557_032, (224, 224, 3))
    assert sized.flops == pytest.approx(2 * 4.09e9, rel=0.005)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--models", "resnet51"], "--models: there is no 'resnet51'; choose from tsm_k400, resnet50_imagenet"),
        (["-n", "0"], "--count: must be at least 1"),
        (["--batch", "0"], "--batch: must be at least 1"),
        (["--seconds", "0"], "--seconds: must be above 0"),
        (["-o", "model.widht=3"], "unknown key"),
    ],
)
def test_errors(words, message, capsys):
    assert bench.main(["deploy", *words]) == 2
    assert message in capsys.readouterr().err
