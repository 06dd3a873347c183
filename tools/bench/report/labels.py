"""Short names of cases: what differs between those in a plot."""

import re
from collections.abc import Sequence

from zoo.bench.report.run import Case

MAX_LENGTH = 52  # characters of a label
MAX_WORD = 22  # characters of a name in it


def labels(cases: Sequence[Case]) -> dict[Case, str]:
    """Return a label for each case, of the fields that are not the same in all; a single case has all that matter."""
    fields = [name for name in Case._fields if len({getattr(case, name) for case in cases}) > 1]
    always = ["framework", "precision"]
    shown = [name for name in Case._fields if name in fields or (name in always and len(fields) < 3)]
    found = {case: shorten(" ".join(word for name in shown if (word := _word(case, name)))) for case in cases}
    if len(set(found.values())) < len(found):  # cut off where they differ
        found = {
            case: f"{number}: {shorten(text, MAX_LENGTH - 4)}" for number, (case, text) in enumerate(found.items(), 1)
        }
    return {case: text or "all" for case, text in found.items()}


def _word(case: Case, name: str) -> str | None:
    value = getattr(case, name)
    if value is None:
        return None
    words = {
        "batch": f"batch {value}",
        "accumulate": f"accumulate {value}",
        "nodes": f"{value} node" if value == 1 else f"{value} nodes",
        "cards": f"{value} card" if value == 1 else f"{value} cards",
    }
    return words.get(name, shorten(str(value), MAX_WORD))


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts bz4 before bz16."""
    return [(int(part), "") if part.isdecimal() and len(part) < 16 else (-1, part) for part in re.split(r"(\d+)", name)]


def shorten(text: str, length: int = MAX_LENGTH) -> str:
    """Return a text of at most `length` characters, with a gap after its first third if it is longer."""
    if len(text) <= length:
        return text
    head = (length - 1) // 3
    return text[:head] + "…" + text[len(text) - (length - 1 - head) :]
