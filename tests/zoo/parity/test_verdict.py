"""Which module, and which of its tensors, a difference belongs to."""

from zoo.parity.differences import Difference, Event
from zoo.parity.verdict import group


def beyond(name: str, part: str) -> Difference:
    return Difference(Event({}, "training", name, part, {}), 1.0, 0.1, 1.0, ())


def test_statistics_have_a_finding_of_their_own():
    """So that a rounded epsilon, which the gradients show first, does not hide another momentum."""
    found = group(
        [beyond("bn.weight", "gradient"), beyond("bn.bias", "gradient"), beyond("bn.running_var", "statistic")]
    )
    assert {key: len(differences) for key, differences in found.items()} == {("bn", False): 2, ("bn", True): 1}
