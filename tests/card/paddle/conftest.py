"""A device of Paddle's without hardware, and child processes that see it."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from tests.card.conftest import runner
from tests.card.paddle import build
from tests.helpers.processes import require_framework


@pytest.fixture(scope="session")
def variables(tmp_path_factory):
    """The environment variables of a process in which Paddle has a device npu."""
    require_framework("paddle")
    paddle = Path(importlib.util.find_spec("paddle").submodule_search_locations[0])
    lacking = build.missing(paddle) or ("" if shutil.which("g++") else "g++")
    if lacking:
        pytest.skip(f"the device is built with {lacking}, which is not there")
    folder = tmp_path_factory.mktemp("npu")
    build.build(paddle, folder)
    return {"CUSTOM_DEVICE_ROOT": str(folder), "GLOG_minloglevel": "1"}


@pytest.fixture(scope="session")
def npu(variables):
    """(words of a Python command, variables) -> what it prints, in such a process."""
    return runner(sys.executable, variables["CUSTOM_DEVICE_ROOT"], **variables)
