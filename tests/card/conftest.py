"""The GPU builds of PyTorch and MindSpore, and child processes of them on the card without hardware."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.card import build, build_mindspore
from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework

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
    return runner(PYTHON, library, TRITON_LIBCUDA_PATH=library)


@pytest.fixture(scope="session")
def mindspore_card(tmp_path_factory):
    """Like `card`, in MindSpore on a V100."""
    require_framework("mindspore")
    library = tmp_path_factory.mktemp("card")
    mindspore = Path(importlib.util.find_spec("mindspore").submodule_search_locations[0])
    build_mindspore.build(mindspore / "lib/plugin", library)
    return runner(sys.executable, library, XDG_CACHE_HOME=library, CARD_CAPABILITY=70)


def runner(python, library, **fixed):
    def run(*words, root=ROOT, **variables):
        paths = {"LD_LIBRARY_PATH": library, "PYTHONPATH": f"{library}:{root}"}
        settings = {"CARD_MIB": 15700, "OMP_NUM_THREADS": 1, "TERM": "dumb", **paths, **fixed, **variables}
        environment = {**os.environ, **{key: str(value) for key, value in settings.items()}}
        command = [str(python), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=400)
        if done.returncode:
            raise AssertionError(f"code {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    return run
