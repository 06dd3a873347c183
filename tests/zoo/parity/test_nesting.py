"""zoo/parity/nesting.py: modules that end at other places."""

import numpy as np

from zoo.parity import nesting, record
from zoo.parity.record import Call

NAMES = ("", "norm", "head")


def side(norm, head, stages=("evaluation", "training")):
    """A record of a model that calls a normalization and a head; the outputs of both are numbers."""
    made = record.empty("torch", "fp64", {})
    for stage in stages:
        outputs = {"": head, "norm": norm, "head": head}
        spans = {"": (1, 6), "norm": (2, 3), "head": (4, 5)}
        made.passes[stage] = [Call(f"{stage}/{name}", name, 0, "", (), (), 0, 1, spans[name]) for name in NAMES]
        for name, value in outputs.items():
            made.add(f"{stage}/{name}/out0", np.full((2, 3), value))
    return made


def test_a_module_that_has_the_activation_of_the_next_one_ends_elsewhere():
    """Its output differs, but that of the model does not; in fp64, rounding explains 1e-16, not 1e-3."""
    reference = side(1.0, 2.0)
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.001, 2.0)}, {}) == {("norm", 0)}
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.0, 2.0)}, {}) == set()
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.001, 2.001)}, {}) == set()
    left = nesting.without(reference, {("norm", 0)})
    assert {title: [call.name for call in calls] for title, calls in left.passes.items()} == {
        "evaluation": ["", "head"],
        "training": ["", "head"],
    }
