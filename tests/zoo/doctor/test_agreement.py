"""Differences of updates whose size is known."""

import math

import numpy as np
import pytest

from zoo.doctor.agreement import TOLERANCES, Update, defect, difference, load

NUMBERS = {"loss": 2.0, "grad_norm": 1.0, "skipped": 0.0}


def update(weight=(0.9, 2.0), statistic=(0.1,), numbers=NUMBERS, begin=(1.0, 2.0)):
    """An update by 0.1 in the first weight and by 0.1 in the statistic."""
    before = {"a.weight": np.array(begin, np.float32), "a.running_mean": np.zeros(1, np.float32)}
    after = {"a.weight": np.array(weight, np.float32), "a.running_mean": np.array(statistic, np.float32)}
    return Update(dict(numbers), before, after)


def test_an_update_that_is_sound():
    assert defect(update()) is None
    assert difference(update(), update()) == (0.0, 0.0)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"numbers": {**NUMBERS, "loss": None}}, "not finite"),
        ({"numbers": {**NUMBERS, "grad_norm": None}}, "not finite"),
        ({"numbers": {**NUMBERS, "skipped": 1.0}}, "skipped"),
        ({"weight": (math.nan, 2.0)}, "a.weight is not finite after the update"),
        ({"statistic": (math.inf,)}, "a.running_mean is not finite"),
        ({"weight": (1.0, 2.0)}, "changed no weight"),
    ],
)
def test_an_update_that_is_not(changes, words):
    assert words in defect(update(**changes))


def test_differences_are_relative_to_the_update():
    """Wrong by 0.01 in an update of 0.1 is 10 %, whatever the size of the weights."""
    other = update(weight=(0.9, 2.01))
    assert difference(other, update()).update == pytest.approx(0.1, rel=1e-4)
    assert difference(update(statistic=(0.05,)), update()).update == pytest.approx(0.5, rel=1e-4)
    loss = difference(update(numbers={**NUMBERS, "loss": 2.2}), update()).loss
    assert loss == pytest.approx(0.1)
    assert difference(update(weight=(1.0, 2.0), statistic=(0.1,)), update()).update == pytest.approx(1, rel=1e-4)


def test_updates_that_began_elsewhere_cannot_be_compared():
    assert difference(update(begin=(1.0, 2.5)), update()) == (math.inf, math.inf)


def test_tolerances_grow_with_the_rounding():
    fp32, fp16, bf16 = (TOLERANCES[name] for name in ("fp32", "fp16", "bf16"))
    assert fp32 < fp16 < bf16 and bf16.update < 1  # a layer that is not updated differs by 1


def test_files(tmp_path):
    expected = update()
    arrays = {f"before/{name}": value for name, value in expected.before.items()}
    arrays.update({f"after/{name}": value for name, value in expected.after.items()})
    np.savez(tmp_path / "tsm.npz", **arrays)
    read = load(NUMBERS, tmp_path / "tsm.npz")
    assert difference(read, expected) == (0.0, 0.0) and read.numbers == NUMBERS
