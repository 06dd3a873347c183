"""How long threads of PyTorch wait; read when it is imported first."""

import importlib
import os

import pytest

import zoo.trainer.torch

KEYS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"


@pytest.mark.parametrize(
    "given, expected", [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, None)]
)
def test_threads_that_wait_sleep_soon_unless_the_user_says_otherwise(monkeypatch, given, expected):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    importlib.reload(zoo.trainer.torch)
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
