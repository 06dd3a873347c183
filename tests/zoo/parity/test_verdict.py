"""Which module, and which of its tensors, a difference belongs to."""

from zoo.parity.differences import Difference, Event
from zoo.parity.verdict import group


def beyond(name: str, part: str) -> Difference:
    return Difference(Event({}, "training", name, part, {}), 1.0, 0.1, 1.0, ())


def test_inputs_and_statistics_have_findings_of_their_own():
    """So that code before a module does not hide its epsilon, nor a gradient its momentum."""
    parts = [("norm", "input"), ("norm", "output"), ("norm.weight", "gradient"), ("norm.running_var", "statistic")]
    found = group([beyond(*part) for part in parts])
    assert {key: len(differences) for key, differences in found.items()} == {
        ("norm", "input"): 1,
        ("norm", ""): 2,
        ("norm", "statistic"): 1,
    }
