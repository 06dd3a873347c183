"""`python -m evidence scale`: its tables, one message for each mistake, calibrations in files and of tiny recipes."""

import json
import sys
import time

import pytest

from evidence.__main__ import main
from evidence.scale import calibration, measuring, model
from evidence.scale.measuring import Command
from tests.evidence.test_scale_model import EIGHT, INTER, known, make
from tests.helpers.processes import require_framework
from zoo.bench.options import Cluster
from zoo.data.errors import UserError
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

LINK = ["--inter-bandwidth", "1", "--inter-latency", "30"]


@pytest.fixture
def measured(tmp_path):
    file = tmp_path / "calibration.json"
    calibration.write(make(runs={8: [known(EIGHT, 0.02)]}), str(file))
    return str(file)


def output(capsys, *words):
    assert main(["scale", *words]) == 0
    return capsys.readouterr().out


def test_predictions(measured, capsys):
    words = ["predict", "--calibration", measured, "--worlds", "1,4x8", *LINK]
    text = output(capsys, *words)
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:4]] == ["1x1", "4x8"]
    assert "resnet50, torch on cuda:0 (V100), 32 samples per card" in text and "the link is as given" in text
    rows = json.loads(output(capsys, *words, "--json"))
    expected = known(Cluster(4, 8), 0.02, INTER)
    assert rows[1]["step ms"] == pytest.approx(1000 * expected)
    assert rows[1]["samples/s"] == pytest.approx(32 * 32 / expected)
    assert rows[1]["efficiency %"] == pytest.approx(100 * 0.3 / expected)
    assert rows[1]["5 %"] < rows[1]["samples/s"] < rows[1]["95 %"]


def test_the_errors_of_the_validation(capsys):
    text = output(capsys, "validate")
    assert "max 6.0%, mean 3.3%" in text and "13 fitted numbers" in text and "max 32.0%, mean 8.0%" in text
    report = json.loads(output(capsys, "validate", "--json"))
    assert report["parameters"] == 13 and len(report["one_host"]) == 11


@pytest.mark.parametrize(
    "words, message",
    [
        (["--worlds", "1,0"], "--worlds"),
        (["--worlds", "2x8"], "--inter-bandwidth and --inter-latency"),
        (["--worlds", "2x8", "--inter-bandwidth", "nan"], "--inter-bandwidth"),
    ],
)
def test_mistakes_in_a_prediction(measured, capsys, words, message):
    assert main(["scale", "predict", "--calibration", measured, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_calibration_in_a_file(tmp_path):
    path = tmp_path / "calibration.json"
    made = make(noise=0.1, runs={8: [0.35]})
    calibration.write(made, str(path))
    assert calibration.read(str(path)) == made
    with pytest.raises(UserError, match="File exists"):
        calibration.write(made, str(path))
    for text in ("{", "[]", '{"format": 1}', '{"format": 2, "steps": [3]}'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"calibration.json: no calibration.*python -m evidence scale calibrate"):
            calibration.read(str(path))


SHAPES = ["model.width=8", "data.size=24", "data.train_images=24", "data.val_images=8", "data.workers=0"]
WIDE = [*SHAPES[1:], "model.width=64"]
FACES = ["model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=16", "data.size=16"]
FACES += ["data.num_classes=10", "train.batch=6"]


def request(recipe, settings, **changes):
    return resolve_recipe(Options(f"configs/{recipe}.yaml", settings, device="cpu", **changes))


def shapes(tmp_path, *more):
    return [*SHAPES, f"data.root={tmp_path / 'shapes'}", *more]


def test_messages_of_normalizations_and_split_classifiers(tmp_path):
    assert measuring.messages(request("resnet50_demo", shapes(tmp_path, "train.sync_bn=true"))).synchronized == 2 * 20
    assert measuring.messages(request("resnet50_demo", shapes(tmp_path))).synchronized == 0
    assert measuring.messages(request("arcface_synthetic", FACES)).gathered == 6 * 16 * 4


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


@pytest.mark.parametrize(
    "setting, message",
    [
        ("train.global_batch=8", "-o train.global_batch="),
        ("framework=jax", "framework: all-reduces are measured in torch, paddle, mindspore, not in jax; take one"),
    ],
)
def test_what_a_calibration_refuses(tmp_path, capsys, setting, message):
    words = ["-c", "configs/resnet50_demo.yaml", "--out", str(tmp_path / "x.json"), "--device", "cpu"]
    words += [word for pair in shapes(tmp_path, setting) for word in ("-o", pair)]
    assert main(["scale", "calibrate", *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "x.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_a_tiny_recipe_is_measured(tmp_path, capsys, framework):
    require_framework(framework)
    out = tmp_path / "calibration.json"
    words = ["-c", "configs/resnet50_demo.yaml", "--framework", framework, "--device", "cpu", "--out", str(out)]
    words += [word for pair in shapes(tmp_path, "train.batch=4", "train.epochs=9") for word in ("-o", pair)]
    timing = ["--rounds", "1", "--drop", "1", "--count", "3", "--worlds", "1,2"]
    assert main(["scale", "calibrate", *words, *timing]) == 0, capsys.readouterr().err
    found = calibration.read(str(out))
    assert (found.framework, found.batch, found.is_cpu) == (framework, 4, True)
    assert {n: [len(seconds) for seconds in rounds] for n, rounds in found.steps.items()} == {1: [3], 2: [6]}
    assert {n: len(rates) for n, rates in found.input.items()} == {1: 3, 2: 3}
    assert {sample.processes for sample in found.sweep} == {2} and len(found.sweep) == 8
    assert found.sweep[-1].seconds > found.sweep[0].seconds
    assert {n: len(seconds) for n, seconds in found.runs.items()} == {2: 3}
    two = model.predict(model.build(found), Cluster(1, 2))
    assert two.samples == 8 and two.seconds > 0
    capsys.readouterr()
    assert main(["scale", "predict", "--calibration", str(out), "--worlds", "1,2"]) == 0
    assert f"resnet50_demo, {framework} on cpu" in capsys.readouterr().out


SLEEP = "import time; time.sleep(60)"


def command(tmp_path, name, code, **variables):
    return Command([sys.executable, "-c", code], variables, tmp_path / f"{name}.log")


def test_a_failure_ends_the_others(tmp_path):
    start = time.monotonic()
    with pytest.raises(UserError, match=r"failed; the end of its output:\n(.|\n)*ValueError: no memory"):
        measuring.run([command(tmp_path, "a", SLEEP), command(tmp_path, "b", "raise ValueError('no memory')")])
    assert time.monotonic() - start < 30
