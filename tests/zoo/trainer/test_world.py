"""The end of a process of a run."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

END = """
import atexit, torch
from zoo.trainer.torch.world import World
atexit.register(print, "torn down")
print("written")  # to a pipe, so it is buffered
World(0, {size}, torch.device("cpu")).exit_process(3)
print("returned")
"""


@pytest.mark.parametrize("size, code, output", [(1, 0, "written\nreturned\ntorn down\n"), (2, 3, "written\n")])
def test_one_of_several_processes_ends_without_teardown(size, code, output):
    """PyTorch's process group on a CPU may abort in it."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", END.format(size=size)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, output, "")
