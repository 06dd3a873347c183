"""train.py in all frameworks: the same losses, resuming in another framework, after kills, and errors."""

import importlib.util
import os
import signal
import subprocess
import time

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.training import (
    command,
    events,
    lines,
    run,
    same,
    weights,
)
from zoo.frameworks import FRAMEWORKS

STEPS = 6
RARELY = dict(train__eval_every="100 epochs", train__save_every="100 steps")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in FRAMEWORKS), reason="compares all three frameworks"
    ),
]


def run_concurrently(commands):
    """Run programs at the same time and return their output; all must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs):
        assert process.returncode == 0, errors
    return [out for out, _ in outputs]


def losses(folder, name="train"):
    return {event["step"]: event["loss"] for event in events(folder) if event["event"] == name}


@pytest.fixture(scope="module")
def runs(clips, tmp_path_factory):
    """By framework, the folder of a run of the same six updates."""
    root = tmp_path_factory.mktemp("across")
    outputs = run_concurrently(
        [
            command(clips, "--framework", framework, "--out", root / framework, "--max-steps", STEPS, **RARELY)
            for framework in FRAMEWORKS
        ]
    )
    for framework, out in zip(FRAMEWORKS, outputs):
        assert f"computing in fp32 with {framework}" in out
    return {framework: root / framework for framework in FRAMEWORKS}


@pytest.mark.parametrize("framework", FRAMEWORKS[1:])
def test_the_same_losses(runs, framework):
    train_losses = losses(runs[framework])
    assert list(train_losses) == list(range(1, STEPS + 1))
    assert train_losses == pytest.approx(losses(runs["torch"]), rel=1e-3)
    assert losses(runs[framework], "eval") == pytest.approx(losses(runs["torch"], "eval"), rel=1e-3)


@pytest.mark.parametrize("framework", FRAMEWORKS[1:])
def test_a_resumed_run_is_bit_identical(clips, runs, framework, tmp_path):
    """Killed after its first checkpoint; where starting is cheap, also stopped by --max-steps; then resumed."""
    folder = tmp_path / "run"
    often = {**RARELY, "train__save_every": "1 steps", "train__eval_every": "100 epochs"}
    words = command(clips, "--framework", framework, "--resume", folder, "--max-steps", STEPS, **often)
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    start = time.monotonic()
    while not any('"save"' in line for line in lines(folder)) and time.monotonic() - start < 90:
        if process.poll() is not None:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    if framework == "paddle":  # one more interruption
        done = run([*words[:-1], str(STEPS - 1)])
        assert done.returncode == 0 and "resuming from step" in done.stdout, done.stderr
    done = run(words)
    assert done.returncode == 0 and "resuming from step" in done.stdout, done.stderr
    for name in ("model.safetensors", "update.safetensors"):
        paths = [path / f"checkpoints/step-{STEPS:08d}" / name for path in (folder, runs[framework])]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_checkpoint_of_torch_evaluates_the_same_elsewhere(clips, runs):
    """Checkpoints are independent of the framework that wrote them."""
    recorded = [event for event in events(runs["torch"]) if event["event"] == "eval"][-1]
    for out in run_concurrently(
        [
            command(clips, "--eval-only", "--weights", runs["torch"] / "checkpoints/last", "--framework", framework)
            for framework in FRAMEWORKS[1:]
        ]
    ):
        assert f"top1 {recorded['top1']:.4f}  top5 {recorded['top5']:.4f}  loss {recorded['loss']:.4f}" in out


def test_a_run_continues_in_another_framework(clips, runs, tmp_path):
    folder = tmp_path / "run"
    for number, framework in enumerate(FRAMEWORKS, 1):
        where = ["--resume", folder] if number > 1 else ["--out", folder]
        done = run(command(clips, "--framework", framework, *where, "--max-steps", 2 * number, **RARELY))
        assert done.returncode == 0, done.stderr
        if number > 1:
            assert f"changed since the run began: framework: {FRAMEWORKS[number - 2]} -> {framework}" in done.stdout
            assert f"resuming from step {2 * number - 2}" in done.stdout
    assert losses(folder) == pytest.approx(losses(runs["torch"]), rel=1e-3)
    assert weights(folder, STEPS).keys() == weights(runs["torch"], STEPS).keys()
    assert not same(weights(folder, STEPS), weights(folder, 2))
