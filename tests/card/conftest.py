"""The environment of PyTorch's CUDA build, and child processes of it on the card without hardware."""

import os
import subprocess

import pytest

from tests.card import build
from tests.helpers.paths import ROOT

PYTHON = ROOT / ".venv-card/bin/python"


@pytest.fixture(scope="session")
def card(tmp_path_factory):
    """(words of a Python command, variables) -> what it prints; a card has the 16 GB of the reports' if not told.

    root: of another copy of the project.
    """
    if not PYTHON.exists():
        pytest.skip("`make test-card` makes .venv-card")
    library = tmp_path_factory.mktemp("card")
    build.build(next(PYTHON.parent.parent.glob("lib/python*/site-packages")), library)

    def run(*words, root=ROOT, **variables):
        paths = {"LD_LIBRARY_PATH": library, "TRITON_LIBCUDA_PATH": library, "PYTHONPATH": root}
        settings = {"CARD_MIB": 15700, "OMP_NUM_THREADS": 1, "TERM": "dumb", **paths, **variables}
        environment = {**os.environ, **{key: str(value) for key, value in settings.items()}}
        command = [str(PYTHON), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=400)
        if done.returncode:
            raise AssertionError(f"code {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    return run
