"""Every step that trains has a recipe that resolves, at full size, in a dry run, and in each framework."""

from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from zoo.bench.gpu_checks import models, plan
from zoo.bench.gpu_checks.plan import Setting
from zoo.frameworks import FRAMEWORKS
from zoo.run import cli

OUT = Path("/nowhere/check")
REPORTS = {  # model -> samples per update of a card in fp32 and in 16 bits
    "resnet": (128, 256),
    "tsm": (16, 16),
    "deeplabv3plus": (2, 4),
    "arcface": (128, 128),
}


def steps(frameworks=("torch",), dry=False, device="cuda"):
    return plan.steps(Setting(OUT, device, frameworks, dry))


def training(found):
    return [step for step in found if step.words[0].endswith("train.py")]


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_recipe_resolves(framework, dry):
    found = training(steps((framework,), dry))
    assert len(found) > 15
    for step in found:
        request = cli.read(cli.parse(list(step.words[1:])))
        assert request.config.framework == framework and request.config.device == "cuda"
        assert request.config.out == str(OUT / "runs" / step.name / "run")
        if "data" in step.facts:
            is_synthetic = request.resolved["data.name"].value == "synthetic"
            assert is_synthetic == (step.facts["data"] == "synthetic") or step.group == plan.DEMOS


def test_names_are_different_and_groups_known():
    found = steps(FRAMEWORKS)
    names = [step.name for step in found]
    assert len(set(names)) == len(names) and {step.group for step in found} == set(plan.GROUPS)
    assert found[0].name == "doctor" and found[1].group == plan.PARITY


@pytest.mark.parametrize("model", models.MODELS, ids=lambda model: model.name)
def test_speeds_have_the_batch_sizes_of_the_reports(model):
    by_name = {step.name: step for step in steps()}
    for suffix, expected, precision in (("fp32", 0, "fp32"), ("tf32", 0, "fp32"), ("amp", 1, "amp")):
        config = cli.read(cli.parse(list(by_name[f"speed-{model.name}-torch-{suffix}"].words[1:]))).config
        assert config.train.batch == REPORTS[model.name][expected] and config.train.precision == precision
        assert config.train.tf32 == (suffix == "tf32")
    for suffix, compile in (("amp-compile", True), ("amp-graphs", "reduce-overhead")):
        config = cli.read(cli.parse(list(by_name[f"speed-{model.name}-torch-{suffix}"].words[1:]))).config
        assert config.train.compile == compile and config.train.precision == "amp"


@pytest.mark.parametrize("dry", [False, True])
def test_the_recipe_beside_a_peer_resolves(dry, tmp_path):
    (tmp_path / "insightface").mkdir()
    found = plan.steps(Setting(OUT, "cuda", ("torch",), dry, tmp_path))
    steps_of_peers = [step for step in found if step.group == plan.PEERS]
    assert len(steps_of_peers) == 2 * len(models.MODELS)
    for step in steps_of_peers:
        pairs = [word for before, word in zip(step.words, step.words[1:]) if before == "-o"]
        request = cli.request(step.words[step.words.index("-c") + 1], pairs)
        assert request.config.train.precision == ("amp" if "AMP" in step.facts["arithmetic"] else "fp32")
        if "resnet" not in step.name:
            assert (ROOT / (step.words[step.words.index("--peer") + 1].replace(".", "/") + ".py")).exists()
    reasons = {step.facts["model"]: step.missing for step in steps_of_peers}
    assert "temporal-shift-module" in reasons["tsm"] and reasons["arcface"] is None


def test_mindspore_has_no_fp64_on_a_gpu():
    words = {name: " ".join(step.words) for name in FRAMEWORKS for step in steps((name,)) if "tiny" in step.name}
    assert "fp64" in words["torch"] and "fp64" in words["paddle"] and "fp64" not in words["mindspore"]


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(models, "is_installed", lambda name: name not in ("cv2", "nvidia.dali"))
    found = {step.name: step for step in steps()}
    assert found["files"].missing == "not installed: cv2"
    assert found["speed-resnet-torch-files-dali"].missing == "not installed: cv2"
    assert found["demos-resnet-torch-amp"].facts["data"] == "synthetic"
    assert found["demos-resnet-torch-amp"].missing is None
    monkeypatch.setattr(models, "is_installed", lambda name: name != "nvidia.dali")
    found = {step.name: step for step in steps()}
    assert found["speed-resnet-torch-files-dali"].missing == "not installed: nvidia.dali"
    assert found["files"].missing is None and found["demos-resnet-torch-amp"].facts["data"] == "the demo's"


def test_a_package_within_a_missing_one_is_missing():
    assert not models.is_installed("no_such_package.part") and models.is_installed("numpy.linalg")
