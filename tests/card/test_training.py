"""train.py on the card: it trains, saves, resumes and evaluates. Kernels compute nothing, so no weight changes."""

import re

import pytest
from safetensors.numpy import load_file

from tests.helpers.processes import SETTINGS, losses, train_arguments

pytestmark = pytest.mark.card

UPDATES = 6
CARDS = {"torch": "card", "mindspore": "mindspore_card"}


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("model", SETTINGS)
@pytest.mark.parametrize("framework", CARDS)
def test_a_run_is_saved_resumed_and_evaluated(request, demo_sets, framework, model, precision, tmp_path):
    run, out, last = request.getfixturevalue(CARDS[framework]), tmp_path / "run", tmp_path / "run/checkpoints/last"
    changes = {"train.precision": precision, "train.epochs": "", "train.steps": UPDATES, "optim.warmup": "2 steps"}
    words = train_arguments(demo_sets, model, out, framework, "--device", "cuda", **changes)
    run(*words, "--max-steps", UPDATES // 2)
    before = vectors(last)
    run("train.py", "--resume", out)
    assert list(losses(out)) == list(range(1, UPDATES + 1)) and vectors(last) == before
    device = ["--framework", framework, "--device", "cuda"]
    printed = run("train.py", "--eval-only", "--weights", last, *device)
    assert re.search(r"evaluation.*: \w+ [0-9.]+", printed)


def vectors(folder):
    """Return the contents of the tensors that only copies touch; a kernel puts convolutions in the order of memory."""
    tensors = load_file(folder / "model.safetensors")
    return {name: tensor.tobytes() for name, tensor in tensors.items() if tensor.ndim < 4}
