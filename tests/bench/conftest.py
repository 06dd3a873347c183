"""Programs in processes of their own: a process has one framework."""

import os
import subprocess

import pytest

from tests.helpers.paths import ROOT
from zoo import program


@pytest.fixture
def run_program():
    """Return a function that runs `zoo WORDS` and returns its standard output."""

    def run(*words):
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            program.command(*words), capture_output=True, text=True, timeout=300, cwd=ROOT, env=environ, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
