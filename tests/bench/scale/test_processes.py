"""Processes of a calibration: the first that fails ends the others, and its output is shown."""

import sys
import time

import pytest

from zoo.bench.scale import processes
from zoo.bench.scale.processes import Command
from zoo.data.errors import UserError

SLEEP = "import time; time.sleep(60)"


def command(tmp_path, name, code, **variables):
    return Command([sys.executable, "-c", code], variables, tmp_path / f"{name}.log")


def test_all_run_at_once_with_their_variables(tmp_path):
    code = "import os, sys; sys.stdout.write(os.environ['RANK'] * 100_000)"  # more than a pipe holds
    processes.run([command(tmp_path, rank, code, RANK=rank) for rank in "01"])
    assert [(tmp_path / f"{rank}.log").read_text() for rank in "01"] == ["0" * 100_000, "1" * 100_000]


def test_a_failure_ends_the_others(tmp_path):
    start = time.monotonic()
    with pytest.raises(UserError, match=r"failed; the end of its output:\n(.|\n)*ValueError: no memory"):
        processes.run([command(tmp_path, "a", SLEEP), command(tmp_path, "b", "raise ValueError('no memory')")])
    assert time.monotonic() - start < 30


def test_a_process_that_never_ends_is_given_up(tmp_path):
    with pytest.raises(UserError, match="waited 0 s"):
        processes.run([command(tmp_path, "a", SLEEP)], timeout=0.2)
