"""zoo/parity/nesting.py: modules that end at other places."""

import numpy as np
import pytest

from zoo.parity import nesting, record
from zoo.parity.record import Call

NAMES = ("", "norm", "head")


def side(norm, head, stages=("evaluation", "training")):
    """A record of a model that calls a normalization and a head; the outputs of both are numbers."""
    made = record.empty("torch", "fp64", {})
    for stage in stages:
        outputs = {"": head, "norm": norm, "head": head}
        spans = {"": (1, 6), "norm": (2, 3), "head": (4, 5)}
        made.passes[stage] = [
            Call(f"{stage}/{name}", name, 0, "", (), (), int(name == "head"), 1, spans[name]) for name in NAMES
        ]
        for name, value in outputs.items():
            made.add(f"{stage}/{name}/out0", np.full((2, 3), value))
        made.add(f"{stage}/head/in0", np.full((2, 3), 1.0))
    return made


def test_a_module_that_has_the_activation_of_the_next_one_ends_elsewhere():
    """Its output differs by more than an epsilon or rounding does, but that of the model does not."""
    reference = side(1.0, 2.0)
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.5, 2.0)}, {}) == {("norm", 0)}
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.0, 2.0)}, {}) == set()
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.5, 2.001)}, {}) == set()
    assert nesting.ending_elsewhere({"a": reference, "b": side(1.0 + 1e-9, 2.0)}, {}) == set()
    left = nesting.only(reference, [("", 0), ("head", 0)])
    assert {title: [call.name for call in calls] for title, calls in left.passes.items()} == {
        "evaluation": ["", "head"],
        "training": ["", "head"],
    }


@pytest.mark.parametrize(
    "output, found", [(1.0, set()), (1.5, {("norm", 0)}), (2.0, {("norm", 0)}), (1.4, set())]
)  # of the module itself, the next one's input, its output, and neither
def test_a_module_whose_output_is_what_follows_the_other(output, found):
    reference, other = side(1.0, 2.0), side(output, 3.0)
    reference.add("evaluation/head/in0", np.full((2, 3), 1.5))
    assert nesting.holding_what_follows(reference, other) == found
