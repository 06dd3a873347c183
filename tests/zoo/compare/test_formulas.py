"""zoo/compare/formulas.py against the formulas of tests/zoo/trainer/optimizer_reference.py, and its slips."""

import numpy as np
import pytest

from tests.zoo.trainer.optimizer_reference import Reference
from zoo import optim
from zoo.compare import causes, formulas, optimizer
from zoo.trainer.plan import ParamGroup, Plan

OTHERS = [name for name in optim.NAMES if name != "sgd"]
SHAPE, LR, GROUP = (4, 5), 0.1, ParamGroup(2.0, 1e-2)
SLIPS = [
    ("adamw", "coupled"),
    ("adamw", "uncorrected"),
    ("lamb", "coupled"),
    ("lamb", "untrusted"),
    ("lars", "untrusted"),
    ("sgd_nesterov", "plain"),
    *((name, "ignored") for name in OTHERS),
]


def check(name, slip=""):
    """Check the second update of a run, with a slip."""
    spec, rng = optim.load_settings(name)(), np.random.default_rng(1)
    reference = Reference(spec)
    reference.applied = 1
    weight = reference.update("w", rng.standard_normal(SHAPE), rng.standard_normal(SHAPE), 0.2, 1e-2)
    slots = {slot: reference.slots[slot, "w"] for slot in spec.slots}
    gradient, reference.applied = rng.standard_normal(SHAPE), 2
    after = reference.update("w", weight, gradient, LR * GROUP.lr_scale, GROUP.weight_decay)
    if slip:
        after = weight + formulas.update(spec, formulas.Inputs(weight, gradient, slots, LR, *GROUP, 2), slip)
    before = {"w": weight, **{f"optimizer/{slot}/w": value for slot, value in slots.items()}}
    plan = Plan((), (), lambda name: GROUP, optimizer=spec)
    return optimizer.check(plan, set(), LR, before, {"w": after}, {"w": gradient}, 1.0, 2.0**-52, applied=2)


@pytest.mark.parametrize("name", OTHERS)
def test_an_update_by_the_formula_is_no_deviation(name):
    assert check(name) == {}


@pytest.mark.parametrize("name, slip", SLIPS)
def test_a_slip_is_found_and_named(name, slip):
    deviations = check(name, slip)
    assert slip in deviations["w"]["factors"]
    assert formulas.SLIPS[slip] in causes.of_update(deviations, 0.0)
