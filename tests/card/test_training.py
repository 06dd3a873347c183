"""train.py on the card: it trains, saves, resumes and evaluates. Kernels compute nothing, so no weight changes."""

import re

import pytest
from safetensors.numpy import load_file

from tests.helpers.processes import SETTINGS, losses, train_arguments

pytestmark = pytest.mark.card

UPDATES = 6


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("model", SETTINGS)
def test_a_run_is_saved_resumed_and_evaluated(card, demo_sets, model, precision, tmp_path):
    out, last = tmp_path / "run", tmp_path / "run/checkpoints/last"
    changes = {"train.precision": precision, "train.epochs": "", "train.steps": UPDATES, "optim.warmup": "2 steps"}
    words = train_arguments(demo_sets, model, out, "torch", "--device", "cuda", **changes)
    card(*words, "--max-steps", UPDATES // 2)
    before = vectors(last)
    card("train.py", "--resume", out)
    assert list(losses(out)) == list(range(1, UPDATES + 1)) and vectors(last) == before
    printed = card("train.py", "--eval-only", "--weights", last, "--device", "cuda")
    assert re.search(r"evaluation.*: \w+ [0-9.]+", printed)


def vectors(folder):
    """Return the contents of the tensors that only copies touch; a kernel puts convolutions in the order of memory."""
    tensors = load_file(folder / "model.safetensors")
    return {name: tensor.tobytes() for name, tensor in tensors.items() if tensor.ndim < 4}
