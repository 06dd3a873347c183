"""An environment without variables that reach the processes of a run."""

import os

import pytest

from zoo.distributed.environment import PREFIXES


@pytest.fixture
def no_variables(monkeypatch):
    """Remove every variable that a start would carry or mention: a machine may set any, such as OPENBLAS_CORETYPE."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
