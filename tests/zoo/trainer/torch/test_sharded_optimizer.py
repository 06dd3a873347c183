"""Optimizer state that is divided over two processes: the same bits, half the memory, resumed either way."""

import subprocess

import pytest

from tests.helpers.processes import ROOT, environment, launcher
from zoo import optim


@pytest.mark.slow
def test_two_processes_compute_the_same_bits_with_half_the_state():
    command = launcher("mpirun", 2, None)
    if command[0] is None:
        pytest.skip("mpirun is not installed")
    process = subprocess.run(
        [*command, "-m", "tests.zoo.trainer.torch.sharded_optimizer_worker", *optim.OPTIMIZERS],
        cwd=ROOT,
        text=True,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=300,
    )
    assert process.returncode == 0 and process.stdout.strip().endswith("equal"), process.stdout + process.stderr[-4000:]
