"""Optimizer state that is divided over two processes: the same bits, half the memory, resumed either way."""

import pytest

from tests.helpers.processes import run
from zoo import optim


@pytest.mark.slow
def test_two_processes_compute_the_same_bits_with_half_the_state():
    printed = run("mpirun", 2, None, ["-m", "tests.zoo.trainer.torch.sharded_optimizer_worker", *optim.OPTIMIZERS])
    assert printed.strip().endswith("equal")
