"""Early stopping: evaluations without a better metric, counted from the journal, so that a resumed run counts on."""

import math
from collections.abc import Sequence

from zoo.logs.journal import Event


def explain(events: Sequence[Event], limit: int | None) -> str | None:
    """Return why a run ends after its last evaluation, None if it goes on.

    Args:
        events: of the run, as `journal.history` returns them.
        limit: evaluations in a row without a better accuracy that end a run; None: no number of them does.
    """
    count = evaluations_without_improvement(events)
    if limit is None or count < limit:
        return None
    last = f"the last {count} evaluations" if count > 1 else "the last evaluation"
    best = max(filter(math.isfinite, (event["accuracy"] for event in _evaluations(events))), default=None)
    before = "none was finite" if best is None else f"the best is {best:.4f}"
    return f"the metric has not improved in {last} ({before}; train.early_stopping={limit})"


def evaluations_without_improvement(events: Sequence[Event]) -> int:
    """Return how many evaluations there are after the one that reached the best accuracy first.

    An accuracy that is not finite improves nothing.
    """
    best, count = -math.inf, 0
    for event in _evaluations(events):
        improves = event["accuracy"] > best
        best, count = (event["accuracy"], 0) if improves else (best, count + 1)
    return count


def _evaluations(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "eval"]
