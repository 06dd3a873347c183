"""Jobs whose memory format a few real updates settle, in PyTorch."""

import pytest

from tests.helpers.paths import CONFIGS
from zoo.run import choices, cli, trial
from zoo.run import job as jobs

pytest.importorskip("torch")

SMALL = {
    "tsm": ("clip", "model.width=16", "data.size=16", "data.segments=2", "train.batch=3"),
    "resnet50": ("image", "model.width=16", "data.size=16", "train.batch=3"),
    "deeplabv3plus": ("scene", "model.width=16", "model.head_width=8", "data.crop=[32,64]", "train.batch=2"),
    "arcface": ("face", "model.width=16", "data.size=32", "train.batch=3", "data.num_classes=1200"),
}


@pytest.fixture
def worth_measuring(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choices, "MIN_UPDATES", 1)
    monkeypatch.setattr(choices, "MIN_FLOPS", 0)
    monkeypatch.setattr(trial, "ROUNDS", 1)
    monkeypatch.setattr(trial, "BUSY", 2.0)  # also on a busy machine


def assemble(model, *changes, measure=True):
    kind, *small = SMALL[model]
    words = ["data.name=synthetic", f"data.kind={kind}", "data.workers=0", "data.train_samples=6", "model.depth=18"]
    request = cli.request(str(CONFIGS / f"{model}_demo.yaml"), [*words, *small, *changes], device="cpu")
    return jobs.assemble(request, jobs.join(request, {}), measure)


@pytest.mark.parametrize("model", SMALL)
def test_updates_of_every_model_are_measured(worth_measuring, monkeypatch, model):
    plain = assemble(model, measure=False)
    assert plain.choice.record is None and plain.plan.mode.channels_last
    choice = assemble(model).choice
    assert choice.origin == "measured" and choice.seconds.keys() == {"true", "false"}
    assert all(0 < seconds < 20 for seconds in choice.seconds.values())

    monkeypatch.setattr(choices, "fastest", lambda seconds: 1)
    monkeypatch.setattr(trial, "measure", None)
    job = assemble(model)
    assert job.choice.origin == "cached" and not job.plan.mode.channels_last
    assert [param.shape for param in job.trainer.params] == [param.shape for param in plain.trainer.params]


@pytest.mark.parametrize("changes", [["train.channels_last=true"], ["train.precision=exact"], ["train.precision=fp64"]])
def test_a_recipe_that_leaves_nothing_open_is_not_measured(worth_measuring, monkeypatch, changes):
    monkeypatch.setattr(trial, "measure", None)
    job = assemble("resnet50", *changes)
    assert job.choice.record is None and job.plan.mode.channels_last
