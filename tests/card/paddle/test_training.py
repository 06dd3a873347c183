"""The models in 16 bits on the device: they train, resume, skip updates that overflow, are evaluated and exported."""

import re

import pytest
from safetensors.numpy import load_file

from tests.helpers.processes import SETTINGS, losses, train_arguments
from zoo.logs import journal

pytestmark = pytest.mark.slow

SAVED, UPDATES = 2, 4
TOO_LARGE = 2.0**120  # a loss scale with which gradients are infinite
DEVICE = ("--framework", "paddle", "--device", "npu")


def train(npu, demo_sets, model, out, *words, **changes):
    changes = {"train.epochs": "", "train.steps": UPDATES, "optim.warmup": "2 steps", **changes}
    npu(*train_arguments(demo_sets, model, out, "paddle", "--device", "npu", *words, **changes))


def contents(run, step="last"):
    """Return the bytes of the tensors of a checkpoint."""
    folder = run / "checkpoints" / step
    tensors = {**load_file(folder / "model.safetensors"), **load_file(folder / "update.safetensors")}
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("model", SETTINGS)
def test_a_run_is_resumed_evaluated_and_exported(npu, demo_sets, model, precision, tmp_path):
    """A run that is resumed is the same as one that is not, to the last bit."""
    changes = {"train.precision": precision}
    if precision == "fp16":
        changes["optim.initial_loss_scale"] = 1024  # with 65536, the first gradients of faces overflow
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    train(npu, demo_sets, model, whole, **changes)
    train(npu, demo_sets, model, parted, "--max-steps", SAVED, **changes)
    npu("train.py", "--resume", parted)
    assert list(losses(parted)) == list(range(1, UPDATES + 1)) and losses(parted) == losses(whole)
    assert contents(parted) == contents(whole)
    events = {event["event"]: event for event in journal.history(str(parted))}
    begin, update = events["begin"], events["train"]
    assert (begin["device"], begin["compute"], begin["level"]) == ("npu:0", precision, "O1")
    assert update["skipped"] == 0 and update["device_memory_bytes"] > 0

    printed = npu("train.py", "--eval-only", "--weights", whole, *DEVICE)
    assert re.search(r"evaluation.*: \w+ [0-9.]+", printed)
    assert "opset" in npu("-m", "zoo", "export", whole, "--out", tmp_path / "model.onnx")


@pytest.mark.parametrize("model", ["resnet50", "arcface"])  # without and with a class matrix
def test_updates_that_overflow_are_skipped(npu, demo_sets, model, tmp_path):
    changes = {"train.precision": "fp16", "optim.loss_scale": TOO_LARGE}
    message = r"(?s)^code 2: .*no finite gradient in the last 2 updates, .* not finite: gradients of conv1\.weight"
    with pytest.raises(AssertionError, match=message):
        train(npu, demo_sets, model, tmp_path / "run", "--max-steps", 2, **changes)
    state = contents(tmp_path / "run", "step-00000001")
    assert not any(any(value) for name, value in state.items() if name.startswith("optimizer/"))
