"""Runs whose batches DALI decodes in the training process, as on a GPU, are those with DALI in worker processes."""

import subprocess
import sys

import pytest

from tests.data.loaders.test_dali import needs_dali
from tests.helpers.paths import ROOT
from tests.helpers.processes import environment, evaluation, losses, require_framework, train_arguments
from tests.zoo.run.device_training import DECODED
from zoo.frameworks import FRAMEWORKS

pytestmark = [pytest.mark.slow, needs_dali]
CASES = [(framework, "resnet50", {}) for framework in FRAMEWORKS]
CASES += [("torch", "arcface", {}), ("torch", "deeplabv3plus", {"data__photometric": "false"})]


def start(line, *more):
    done = subprocess.run(
        [sys.executable, *line, *more], capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.rstrip().rpartition("\n")[2]


@pytest.mark.parametrize("framework, model, changes", CASES, ids=[f"{name}-{model}" for name, model, _ in CASES])
def test_losses_and_metrics_are_equal(framework, model, changes, demo_sets, tmp_path):
    require_framework(framework)
    changes = {**changes, "data__loader": "dali", "data__workers": 1, "train__eval_every": "2 steps"}
    found = []
    for program in ("train.py", "tests/zoo/run/device_training.py"):
        out = tmp_path / program.replace("/", ".")
        script, *arguments = train_arguments(demo_sets, model, out, framework, "--max-steps", 4, **changes)
        line = [script] if program == "train.py" else ["-m", "tests.zoo.run.device_training"]
        last = start(line, *arguments)
        found.append((losses(out), {**evaluation(out), "seconds": 0, "time": 0}))
    assert int(last.removeprefix(DECODED)) > 4  # those of training and evaluation
    assert found[0] == found[1] and len(found[0][0]) == 4


def test_a_resumed_run_reads_the_same_batches(demo_sets, tmp_path):
    """Which batches a stream begins with is decided outside of the frameworks."""
    changes = {"data__loader": "dali"}
    folders = [tmp_path / "straight", tmp_path / "stopped"]
    for out, steps in zip(folders, (4, 2)):
        _, *arguments = train_arguments(demo_sets, "resnet50", out, "torch", "--max-steps", steps, **changes)
        start(["-m", "tests.zoo.run.device_training"], *arguments)
    start(["-m", "tests.zoo.run.device_training"], "--resume", str(folders[1]), "--max-steps", "4")
    expected, found = (losses(out) for out in folders)
    assert len(expected) == 4 and expected == found
