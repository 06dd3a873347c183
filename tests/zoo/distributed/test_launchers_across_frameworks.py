"""train.py in every framework: the same run, also handed from one to another, stopped, killed and refused."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from data.demo import shapes
from tests.helpers.paths import ROOT
from tests.helpers.training import (
    TRAIN,
    command,
    events,
    lines,
    run,
    same,
    weights,
)
from zoo.frameworks import FRAMEWORKS

OTHERS = FRAMEWORKS[1:]
STEPS = 6
LESS = dict(train__eval_every="100 epochs", train__save_every="100 steps")
PICTURES = os.path.join(ROOT, "configs/resnet50_demo.yaml")

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in FRAMEWORKS), reason="compares all three frameworks"
)


def together(commands):
    """Run some programs beside each other; the output of each. All must succeed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
        for words in commands
    ]
    try:
        ended = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, ended):
        assert process.returncode == 0, errors
    return [out for out, _ in ended]


def losses(folder, kind="train"):
    return {event["step"]: event["loss"] for event in events(folder) if event["event"] == kind}


@pytest.fixture(scope="module")
def runs(clips, tmp_path_factory):
    """Framework -> the folder of the same six updates."""
    root = tmp_path_factory.mktemp("across")
    said = together(
        [
            command(clips, "--framework", framework, "--out", root / framework, "--max-steps", STEPS, **LESS)
            for framework in FRAMEWORKS
        ]
    )
    for framework, out in zip(FRAMEWORKS, said):
        assert f"computing in fp32 with {framework}" in out
    return {framework: root / framework for framework in FRAMEWORKS}


@pytest.mark.parametrize("framework", OTHERS)
def test_the_same_losses(runs, framework):
    ours, theirs = losses(runs[framework]), losses(runs["torch"])
    assert list(ours) == list(range(1, STEPS + 1))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert losses(runs[framework], "eval") == pytest.approx(losses(runs["torch"], "eval"), rel=1e-3)


@pytest.mark.parametrize("framework", OTHERS)
def test_a_stopped_run_ends_bit_identical(clips, runs, framework, tmp_path):
    """Killed after its first checkpoint; where starting is cheap also stopped by --max-steps; then taken up again."""
    folder = tmp_path / "run"
    often = {**LESS, "train__save_every": "1 steps", "train__eval_every": "100 epochs"}
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
    if framework == "paddle":  # one more stop, an orderly one
        done = run([*words[:-1], str(STEPS - 1)])
        assert done.returncode == 0 and "resuming from step" in done.stdout, done.stderr
    done = run(words)
    assert done.returncode == 0 and "resuming from step" in done.stdout, done.stderr
    for name in ("model.safetensors", "update.safetensors"):
        paths = [path / f"checkpoints/step-{STEPS:08d}" / name for path in (folder, runs[framework])]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_evaluation_of_a_checkpoint_of_torch(clips, runs):
    """Nothing in a checkpoint belongs to the framework that wrote it."""
    recorded = [event for event in events(runs["torch"]) if event["event"] == "eval"][-1]
    for out in together(
        [
            command(clips, "--eval-only", "--weights", runs["torch"] / "checkpoints/last", "--framework", framework)
            for framework in OTHERS
        ]
    ):
        assert f"top1 {recorded['top1']:.4f}  top5 {recorded['top5']:.4f}  loss {recorded['loss']:.4f}" in out


def test_a_run_goes_on_in_another_framework(clips, runs, tmp_path):
    folder = tmp_path / "run"
    for number, framework in enumerate(FRAMEWORKS, 1):
        where = ["--resume", folder] if number > 1 else ["--out", folder]
        done = run(command(clips, "--framework", framework, *where, "--max-steps", 2 * number, **LESS))
        assert done.returncode == 0, done.stderr
        if number > 1:
            assert f"changed since the run began: framework: {FRAMEWORKS[number - 2]} -> {framework}" in done.stdout
            assert f"resuming from step {2 * number - 2}" in done.stdout
    assert losses(folder) == pytest.approx(losses(runs["torch"]), rel=1e-3)
    assert weights(folder, STEPS).keys() == weights(runs["torch"], STEPS).keys()
    assert not same(weights(folder, STEPS), weights(folder, 2))


def test_half_precision_as_each_framework_has_it(clips, tmp_path):
    done = run(command(clips, "--framework", "paddle", "--amp", "--device", "cpu", "--out", tmp_path / "paddle"))
    assert done.returncode == 2 and "Paddle has no 16-bit kernels for a CPU" in done.stderr
    assert "leave --amp out" in done.stderr and "Traceback" not in done.stderr
    assert not os.path.exists(tmp_path / "paddle")
    done = run(
        command(
            clips,
            "--framework",
            "mindspore",
            "--amp",
            "--device",
            "cpu",
            "--out",
            tmp_path / "mindspore",
            "--max-steps",
            1,
            **LESS,
        )
    )
    assert done.returncode == 0, done.stderr
    assert "computing in fp16 (O1) with mindspore" in done.stdout
    begin = next(event for event in events(tmp_path / "mindspore") if event["event"] == "begin")
    assert (begin["framework"], begin["compute"], begin["level"]) == ("mindspore", "fp16", "O1")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_missing_framework_is_named_with_its_extra(clips, framework, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] == '{framework}':\n"
        f"            raise ModuleNotFoundError('No module named {framework}', name='{framework}')\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    done = subprocess.run(
        command(clips, "--framework", framework, "--out", tmp_path / "run"),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"error: {framework} is not installed here: pip install '.[{framework}]'\n"
    assert not os.path.exists(tmp_path / "run")


@pytest.mark.parametrize(
    "framework, option, key",
    [
        ("paddle", "train.channels_last=true", "train.channels_last"),
        ("mindspore", "train.channels_last=true", "train.channels_last"),
        ("torch", "train.amp_level=O3", "train.amp_level"),
    ],
)
def test_what_a_framework_cannot_do_is_refused(clips, framework, option, key, tmp_path):
    amp = ["--amp"] * ("amp_level" in option)
    done = run(
        command(clips, "--framework", framework, "-o", option, *amp, "--device", "cpu", "--out", tmp_path / "run")
    )
    assert done.returncode == 2 and done.stderr.startswith(f"error: {key}: ") and not os.path.exists(tmp_path / "run")


def test_the_demo_on_pictures(tmp_path):
    shapes.make(str(tmp_path / "shapes"), 32, 8)
    commands = []
    for framework in FRAMEWORKS:
        words = [
            sys.executable,
            TRAIN,
            "-c",
            PICTURES,
            "--framework",
            framework,
            "--out",
            str(tmp_path / framework),
            "--max-steps",
            "2",
        ]
        for pair in (
            f"data.root={tmp_path}/shapes",
            "data.train_images=32",
            "data.val_images=8",
            "data.size=32",
            "train.batch=16",
            "train.log_every=1",
            "model.width=8",
        ):
            words += ["-o", pair]
        commands.append(words)
    together(commands)
    found = {framework: losses(tmp_path / framework) for framework in FRAMEWORKS}
    assert all(values == pytest.approx(found["torch"], rel=1e-4) for values in found.values())
    assert list(found["torch"]) == [1, 2]
