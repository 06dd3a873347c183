"""The long attacks, such as hostile connections, of which CI runs short parts.

A campaign is a file here with

    KINDS     the kinds of its trials, in the order of the table
    trial     (number, folder) -> Trial; everything random follows from the number, and files go to the empty folder;
              what several trials need may be kept in the parent of that folder, which belongs to the campaign
"""

from collections.abc import Mapping
from typing import NamedTuple


class Trial(NamedTuple):
    """What came of one trial.

    Attributes:
        kind: one of the campaign's KINDS.
        count: how many attacks it was.
        failures: a line for each that did harm; how to repeat it.
        figures: the largest of what was measured, by name with its unit: seconds, bytes.
    """

    kind: str
    count: int
    failures: list[str]
    figures: Mapping[str, float]
