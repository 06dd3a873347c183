"""Loss scale of a run from the recipe to the journal, a resume with another one included."""

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.training import events

TINY = {
    "data.num_classes": 20,
    "data.size": 16,
    "data.val_samples": 10,
    "data.workers": 0,
    "model.depth": 18,
    "train.precision": "fp16",
    "train.batch": 2,
    "train.eval_batch": 10,
    "train.log_every": 1,
    "device": "cpu",
}


def run(*words, **changes):
    settings = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    assert call_zoo("train", *words, *pairs) == 0


def found(folder):
    """Return the loss scale of the event begin, and those of all logged updates."""
    begin = next(event for event in events(folder) if event["event"] == "begin")
    return begin["loss_scale"], [event["scale"] for event in events(folder) if event["event"] == "train"]


@pytest.mark.slow
def test_a_static_scale_is_that_of_the_recipe_and_a_dynamic_one_starts_there(tmp_path):
    new, folder = ["-c", "configs/arcface_synthetic.yaml", "--max-steps", "2"], tmp_path / "run"
    run(*new, "--out", str(folder), optim__loss_scale=64)
    assert found(folder) == ({"initial": 64.0, "dynamic": False}, [64.0, 64.0])
    for number, changes in ((3, {"optim__loss_scale": 32}), (4, {"optim__loss_scale": "dynamic"})):
        run("--resume", str(folder), "--max-steps", str(number), **changes)
        assert found(folder)[1][-1] == 32.0
    run(*new, "--out", str(tmp_path / "dynamic"), optim__initial_loss_scale=16)
    begin, scales = found(tmp_path / "dynamic")
    assert begin == {"initial": 16.0, "dynamic": True} and scales[0] == 16.0
    run(*new, "--out", str(tmp_path / "fp32"), optim__loss_scale=64, train__precision="fp32")
    assert found(tmp_path / "fp32") == (None, [1.0, 1.0])
