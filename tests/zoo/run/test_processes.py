"""Several processes do what one does: every framework, by every launcher that is here; and how they fail."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.processes import (
    ROOT,
    SETTINGS,
    assert_same_run,
    copy_up_to,
    environment,
    launcher,
    losses,
    processes_by_rank,
    require_framework,
    run,
    train_arguments,
)
from zoo.distributed.rendezvous import free_port
from zoo.frameworks import FRAMEWORKS

pytestmark = pytest.mark.slow


RUNS = [(framework, name) for framework in FRAMEWORKS for name in SETTINGS if name != "arcface"]  # which is beside
RUNS.remove(("mindspore", "resnet50"))  # which TSM contains


@pytest.mark.parametrize("framework, model", RUNS)
def test_two_processes_follow_one(single_run, two_process_run, framework, model):
    """The same global batch, batch statistics over both: losses, weights, statistics and the evaluation."""
    expected, found = assert_same_run(
        two_process_run(framework, model), single_run(framework, model), SETTINGS[model].get("train.steps", 12)
    )
    assert found["samples"] == 8
    if model != "deeplabv3plus":  # whose evaluation has no loss
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)


@pytest.mark.parametrize("framework, model", [pair for pair in RUNS if pair[0] != "torch"])
def test_two_processes_begin_alike_in_all_frameworks(two_process_run, framework, model):
    expected, found = (losses(two_process_run(name, model)) for name in ("torch", framework))
    np.testing.assert_allclose([found[step] for step in (1, 2)], [expected[step] for step in (1, 2)], rtol=1e-4)


def test_a_metric_does_not_know_the_number_of_processes(demo_sets, single_run, tmp_path):
    """Seven samples: prime to 2 and 3, and fewer than three processes times two samples and a bit."""
    framework = "torch"  # metrics are numpy's
    weights = single_run(framework, "tsm") / "checkpoints/last"
    lists = tmp_path / "val.list"
    lists.write_text("".join((Path(demo_sets["tsm"]) / "val.list").read_text().splitlines(keepends=True)[:7]))
    found = []
    for size in (1, 3):
        out = run(
            "mpirun" if size > 1 else "python",
            size,
            tmp_path,
            train_arguments(
                demo_sets,
                "tsm",
                tmp_path / "none",
                framework,
                "--eval-only",
                "--weights",
                weights,
                data__val_list=lists,
                train__eval_batch=2,
                train__global_batch="null",
            ),
        )
        found += [line for line in out.splitlines() if line.startswith("evaluation: ")]
    assert len(found) == 2 and "over 7 samples" in found[0]
    assert len({line.split(" in ")[0] for line in found}) == 1, found


def test_a_run_of_two_goes_on_with_one_and_three(single_run, two_process_run, tmp_path):
    """In PyTorch; test_processes_faces.py has the others."""
    expected = losses(single_run("torch", "tsm"))
    copy_up_to(4, two_process_run("torch", "tsm"), tmp_path / "run")
    resume = [str(ROOT / "train.py"), "--resume", str(tmp_path / "run"), "--global-batch", "keep"]
    run("python", 1, tmp_path, [*resume, "--max-steps", "8"])
    out = run("mpirun", 3, tmp_path, resume)
    assert "3 rank(s) x 1 micro-batch(es) x 4 samples = global batch 12" in out
    found = losses(tmp_path / "run")
    np.testing.assert_allclose([found[step] for step in expected], list(expected.values()), rtol=1e-5)


def test_accumulating_stands_in_for_missing_processes(demo_sets, single_run, tmp_path):
    """Two processes and three parts of two samples each; frozen statistics, else parts are batches of their own."""
    line = train_arguments(demo_sets, "tsm", tmp_path / "a", "torch", "--max-steps", 4, train__batch=2)
    out = run("torchrun", 2, tmp_path, line)
    assert "2 rank(s) x 3 micro-batch(es) x 2 samples = global batch 12" in out
    expected, found = losses(single_run("torch", "tsm")), losses(tmp_path / "a")
    assert found[1] == pytest.approx(expected[1], rel=0.1) and found[1] != expected[1]


def test_gradients_travel_as_fp16(demo_sets, single_run, tmp_path):
    expected = losses(single_run("torch", "tsm"))
    line = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", "--max-steps", 4, train__fp16_allreduce="true")
    run("torchrun", 2, tmp_path, line)
    found = losses(tmp_path / "run")
    difference = max(abs(found[step] / expected[step] - 1) for step in found)
    assert 1e-7 < difference < 1e-2


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_rank_ends_all_and_a_resume_repeats(demo_sets, two_process_run, tmp_path, framework):
    """With the same number of processes, every byte is that of a run which nothing disturbed.

    MindSpore's rank 0 has started its scheduler, which must not stay behind: it holds the output that we wait for.
    """
    straight, broken = two_process_run(framework, "tsm"), tmp_path / "broken"
    line = train_arguments(demo_sets, "tsm", broken, framework)
    process = subprocess.Popen(
        [*launcher("mpirun", 2, tmp_path), *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    until = time.monotonic() + 100
    while not (broken / "checkpoints/step-00000003").exists() and time.monotonic() < until:
        time.sleep(0.02)
    victims = processes_by_rank(str(broken))
    began = time.monotonic()
    os.kill(victims[0 if framework == "mindspore" else 1], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode != 0 and time.monotonic() - began < 10
    assert not processes_by_rank(str(broken)), "somebody stayed behind"
    run("mpirun", 2, tmp_path, [line[0], "--resume", str(broken)])
    for file in ("model.safetensors", "update.safetensors"):
        assert (broken / "checkpoints/last" / file).read_bytes() == (straight / "checkpoints/last" / file).read_bytes()


def test_a_scheduler_whose_rank_0_has_gone_ends_at_once():
    """It has gone while MindSpore was imported: another process is the parent."""
    require_framework("mindspore")
    done = subprocess.run(
        [sys.executable, "-m", "zoo.trainer.mindspore.scheduler", "1"],
        cwd=ROOT,
        timeout=60,
        env={
            **environment(),
            "MS_ROLE": "MS_SCHED",
            "MS_WORKER_NUM": "2",
            "MS_SCHED_PORT": "1",
            "MS_SCHED_HOST": "127.0.0.1",
        },
    )
    assert done.returncode == 1


def test_contradictions_are_errors_on_every_rank(demo_sets, tmp_path):
    port = str(free_port("127.0.0.1"))
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, *train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", optim__lr=rate)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment(), **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
        )
        for rank, rate in enumerate((0.02, 0.5))
    ]
    message = "the recipe is not the same on all processes:\n  optim.lr: 0.02 on rank 0, 0.5 on rank 1"
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (1, 2) and message in errors and "Traceback" not in errors
    assert not (tmp_path / "run").exists()
