"""Calibrations of tiny recipes: what an update sends, and the measurement itself."""

import json
import sys
import time

import pytest

from tests.helpers.processes import require_framework
from zoo import cli as program
from zoo.bench.options import Cluster
from zoo.bench.scale import calibration, measuring, model
from zoo.bench.scale.calibration import Messages
from zoo.bench.scale.measuring import Command
from zoo.data.errors import UserError
from zoo.run import cli

SHAPES = ["model.width=8", "data.size=24", "data.train_images=24", "data.val_images=8", "data.workers=0"]
WIDE = [*SHAPES[1:], "model.width=64"]
FACES = ["model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=16", "data.size=16"]
FACES += ["data.num_classes=10", "train.batch=6"]


def request(recipe, settings, **changes):
    return cli.request(f"configs/{recipe}.yaml", settings, device="cpu", **changes)


def shapes(tmp_path, *more):
    return [*SHAPES, f"data.root={tmp_path / 'shapes'}", *more]


def test_gradients_are_counted_in_buckets(tmp_path):
    found = measuring.messages(request("resnet50_demo", [f"data.root={tmp_path / 'shapes'}", *WIDE]))
    assert found.gradients / 4 == pytest.approx(11.18e6, rel=0.01)  # a ResNet-18 of few classes
    assert found == Messages(found.gradients, buckets=2)


@pytest.mark.parametrize(
    "framework, settings, buckets, share",
    [
        ("torch", [], 2, 1),
        ("mindspore", [], 1, 1),
        ("torch", ["train.fp16_allreduce=true"], 2, 2),
        ("paddle", ["train.fp16_allreduce=true"], 1, 2),
    ],
)
def test_each_framework_has_its_buckets(tmp_path, framework, settings, buckets, share):
    base = [f"data.root={tmp_path / 'shapes'}", *WIDE]
    whole = measuring.messages(request("resnet50_demo", base)).gradients
    found = measuring.messages(request("resnet50_demo", [*base, *settings], framework=framework))
    assert (found.buckets, found.gradients) == (buckets, whole // share)


def test_synchronized_batch_norms_send_twice(tmp_path):
    found = measuring.messages(request("resnet50_demo", shapes(tmp_path, "train.sync_bn=true")))
    assert found.synchronized == 2 * 20  # of a ResNet-18
    assert measuring.messages(request("resnet50_demo", shapes(tmp_path))).synchronized == 0


def test_a_split_classifier_gathers_embeddings():
    found = measuring.messages(request("arcface_synthetic", FACES))
    assert found.gathered == 6 * 16 * 4


def test_a_fixed_global_batch_is_refused(tmp_path, capsys):
    words = ["-c", "configs/resnet50_demo.yaml", "--out", str(tmp_path / "x.json"), "--device", "cpu"]
    words += [word for pair in shapes(tmp_path, "train.global_batch=8") for word in ("-o", pair)]
    assert program.main(["bench", "scale", "calibrate", *words]) == 2
    assert "-o train.global_batch=" in capsys.readouterr().err and not (tmp_path / "x.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle", "mindspore"])
def test_a_tiny_recipe_is_measured(tmp_path, capsys, framework):
    require_framework(framework)
    out = tmp_path / "calibration.json"
    words = ["-c", "configs/resnet50_demo.yaml", "--framework", framework, "--device", "cpu", "--out", str(out)]
    words += [word for pair in shapes(tmp_path, "train.batch=4", "train.epochs=9") for word in ("-o", pair)]
    timing = ["--rounds", "1", "--drop", "1", "--count", "3", "--worlds", "1,2"]
    assert program.main(["bench", "scale", "calibrate", *words, *timing]) == 0, capsys.readouterr().err
    found = calibration.read(str(out))
    assert (found.framework, found.batch, found.is_cpu) == (framework, 4, True)
    assert {n: [len(seconds) for seconds in rounds] for n, rounds in found.steps.items()} == {1: [3], 2: [6]}
    assert {n: len(rates) for n, rates in found.input.items()} == {1: 3, 2: 3}
    assert {sample.processes for sample in found.sweep} == {2} and len(found.sweep) == 8
    assert found.sweep[-1].seconds > found.sweep[0].seconds
    assert [(run.cluster, len(run.seconds)) for run in found.runs] == [(Cluster(1, 2), 3)]
    two = model.predict(model.build(found), Cluster(1, 2))
    assert two.samples == 8 and two.seconds > 0
    capsys.readouterr()
    assert program.main(["bench", "scale", "predict", "--calibration", str(out), "--worlds", "1,2"]) == 0
    assert f"resnet50_demo, {framework} on cpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    "visible, expected", [(None, ["0", "1", "2"]), ("4,7", ["4", "7", ""]), ("", ["0", "1", "2"])], ids=str
)
def test_each_copy_has_a_device_of_its_own(monkeypatch, visible, expected):
    for name in measuring.VISIBLE_DEVICES:
        monkeypatch.delenv(name, raising=False)
        if visible is not None:
            monkeypatch.setenv(name, visible)
    assert [set(measuring._device(i).values()) for i in range(3)] == [{word} for word in expected]


def test_copies_on_different_devices_are_refused(tmp_path, monkeypatch):
    def run(commands):
        for number, command in enumerate(commands):
            folder = command.log.with_suffix("")
            folder.mkdir()
            device = ("cuda:0 (V100)", "cpu (2 threads)")[number]
            (folder / "events.jsonl").write_text(json.dumps({"event": "begin", "device": device}) + "\n")

    monkeypatch.setattr(measuring, "run", run)
    plan = measuring.Plan([], None, [1], [2], 1, 1, 2)
    with pytest.raises(UserError, match="--processes 2: they ran on cpu and cuda; this host has fewer devices"):
        measuring._copies(plan, 2, tmp_path / "copies")


SLEEP = "import time; time.sleep(60)"


def command(tmp_path, name, code, **variables):
    return Command([sys.executable, "-c", code], variables, tmp_path / f"{name}.log")


def test_a_failure_ends_the_others(tmp_path):
    start = time.monotonic()
    with pytest.raises(UserError, match=r"failed; the end of its output:\n(.|\n)*ValueError: no memory"):
        measuring.run([command(tmp_path, "a", SLEEP), command(tmp_path, "b", "raise ValueError('no memory')")])
    assert time.monotonic() - start < 30


def test_a_process_that_never_ends_is_given_up(tmp_path):
    with pytest.raises(UserError, match="waited 0 s"):
        measuring.run([command(tmp_path, "a", SLEEP)], timeout=0.2)
