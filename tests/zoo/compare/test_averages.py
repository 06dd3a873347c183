"""The check of moving averages, with right ones and with each slip."""

from dataclasses import replace

import numpy as np
import pytest

from zoo.compare import averages, findings
from zoo.compare.record import empty
from zoo.optim.ema import Ema

SPEC, APPLIED = Ema(0.9), 3  # a rate of 9 / 13
NAMES = ("a.weight", "a.running_mean")
SLIPS = {
    "it stays as it was": 0.0,
    "it is a copy of what it averages": 1.0,
    "decay and 1 - decay are swapped": 4 / 13,
    "there is no warm-up": 0.1,
    "its rate is 0.5 instead of 0.692308": 0.5,
}


def check(rate, skipped=0.0, precision=2.0**-52):
    rng = np.random.default_rng(1)
    old, weights = ({name: rng.standard_normal((3, 4)) for name in NAMES} for _ in range(2))
    new = {name: old[name] + rate * (weights[name] - old[name]) for name in NAMES}
    before = {"scaler/skipped": np.array(1.0), **{f"ema/{name}": value for name, value in old.items()}}
    after = {"scaler/skipped": np.array(1.0 + skipped), **weights}
    after.update((f"ema/{name}", value) for name, value in new.items())
    return averages.check(SPEC, before, after, precision, APPLIED)


def test_the_rate_ends_at_that_of_the_decay():
    assert averages.rate_of(SPEC, 1) == 9 / 11 and averages.rate_of(SPEC, 79) == 9 / 89
    assert averages.rate_of(SPEC, 81) == averages.rate_of(replace(SPEC, warmup=False), 1) == pytest.approx(0.1)


def test_an_average_by_the_formula_is_no_deviation():
    assert check(9 / 13) == {} and check(0.0, skipped=1.0) == {}
    assert check(9 / 13 + 1e-13) and not check(9 / 13 + 1e-13, precision=2.0**-23)


@pytest.mark.parametrize("cause", SLIPS)
def test_a_slip_is_found_and_named(cause):
    deviations = check(SLIPS[cause])
    assert {name: deviation["cause"] for name, deviation in deviations.items()} == dict.fromkeys(NAMES, cause)


def test_an_update_that_was_skipped():
    assert check(9 / 13, skipped=1.0)["a.weight"]["cause"] == "it changes although the update was skipped"


def test_a_finding_names_the_update_the_cause_and_the_file():
    record = empty("torch", "fp64", {"param_groups": dict.fromkeys((*NAMES, "b.weight"))})
    record.files["average"] = ["torch/ema.py"]
    record.steps.extend(
        [
            {"title": "update 1", "averages": {}},
            {"title": "update 2", "averages": check(0.0)},
            {"title": "x"},
        ]
    )
    (finding,) = findings.average_findings("torch", record)
    assert finding.what.startswith("update 2: 2 of 3 moving averages do not follow the formula")
    assert finding.cause == "it stays as it was (a.weight, a.running_mean)" and finding.places == ("torch/ema.py",)
