"""Which module, and which of its tensors, a difference belongs to."""

from zoo.parity.differences import Difference, Event
from zoo.parity.record import Call
from zoo.parity.verdict import group


def beyond(name: str, part: str, largest: float = 1.0) -> Difference:
    calls = {"torch": Call(name, name, 0, "", (), (), 1, 1, (0, 1))}
    return Difference(
        Event({}, "training", name, part, calls if part in ("input", "output") else {}), largest, 0.1, 1.0, ()
    )


def test_inputs_and_statistics_have_findings_of_their_own():
    """So that code before a module does not hide its epsilon, nor a gradient its momentum."""
    parts = [("norm", "input"), ("norm", "output"), ("norm.weight", "gradient"), ("norm.running_var", "statistic")]
    found = group([beyond(*part) for part in parts])
    assert {key: len(differences) for key, differences in found.items()} == {
        ("norm", "input"): 1,
        ("norm", ""): 2,
        ("norm", "statistic"): 1,
    }


def test_a_module_whose_input_has_another_shape_is_not_judged():
    """The reference's input could not take its place."""
    parts = [beyond("pool", "input", float("inf")), beyond("pool", "output"), beyond("conv", "output")]
    assert list(group(parts)) == [("pool", "input"), ("conv", "")]
