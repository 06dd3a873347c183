"""A run goes on in other frameworks: checkpoints do not depend on the one that wrote them."""

import importlib.util

import pytest

from tests.helpers.training import command, events, run
from zoo.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in FRAMEWORKS), reason="compares all frameworks"
    ),
]
RARELY = dict(train__eval_every="100 epochs", train__save_every="100 steps")


def losses(folder):
    return {event["step"]: event["loss"] for event in events(folder) if event["event"] == "train"}


def test_a_run_continues_in_another_framework(clips, tmp_path):
    steps = 2 * len(FRAMEWORKS)
    done = run(command(clips, "--framework", "torch", "--out", tmp_path / "torch", "--max-steps", steps, **RARELY))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run"
    for number, framework in enumerate(FRAMEWORKS, 1):
        where = ["--resume", folder] if number > 1 else ["--out", folder]
        done = run(command(clips, "--framework", framework, *where, "--max-steps", 2 * number, **RARELY))
        assert done.returncode == 0, done.stderr
        if number > 1:
            assert f"changed since the run began: framework: {FRAMEWORKS[number - 2]} -> {framework}" in done.stdout
    assert losses(folder) == pytest.approx(losses(tmp_path / "torch"), rel=1e-3)
