"""zoo/trainer/recording.py without a framework."""

import numpy as np

from zoo.trainer.recording import flatten


def test_tensors_of_nested_values():
    a, b, c = np.zeros(1), np.zeros(2), np.zeros(3)
    assert list(flatten(a)) == [a]
    found = list(flatten((a, [{"x": b, "y": None}, 5], {"z": (c, "text")}, True)))
    assert [array.shape for array in found] == [(1,), (2,), (3,)]
    assert list(flatten(None)) == []
