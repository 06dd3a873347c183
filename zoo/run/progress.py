"""Progress of a run beside its tensors, which its checkpoints hold: its evaluations, and data that cannot be read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.logs import journal
from zoo.logs.journal import Event

FilesOf = Callable[[str], Sequence[str]]  # name of a sample -> names of its items


@dataclass
class Progress:
    """Progress of a run; that of rank 0 counts.

    Attributes:
        evaluations: accuracy by step, in order; NaN where it was not finite.
        unreadable: items of the data that could not be read and have not been mended since.
    """

    evaluations: dict[int, float] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)

    def best(self) -> float | None:
        """Return the best finite accuracy so far, None without one."""
        return max(filter(math.isfinite, self.evaluations.values()), default=None)

    def without_improvement(self) -> int:
        """Return the number of evaluations after the one that reached the best accuracy first.

        An accuracy that is not finite improves nothing.
        """
        best, count = -math.inf, 0
        for accuracy in self.evaluations.values():
            best, count = (accuracy, 0) if accuracy > best else (best, count + 1)
        return count

    def early_end(self, limit: int | None) -> str | None:
        """Return why a run ends after its last evaluation, None if it goes on.

        Args:
            limit: evaluations in a row without a better accuracy that end a run; None: no number of them does.
        """
        count = self.without_improvement()
        if limit is None or count < limit:
            return None
        last = f"the last {count} evaluations" if count > 1 else "the last evaluation"
        best = self.best()
        before = "none was finite" if best is None else f"the best is {best:.4f}"
        return f"the metric has not improved in {last} ({before}; train.early_stopping={limit})"

    def content(self) -> bytes:
        """Return the progress as JSON."""
        values = {"evaluations": list(self.evaluations.items()), "unreadable": sorted(self.unreadable)}
        return journal.json_text(values, indent=1).encode()


def read(path: str) -> Progress:
    """Read a file with the `content` of a progress. Raises UserError if it cannot be read."""
    with parsing(f"{path} cannot be read", "restore it from a copy, or go on from another checkpoint"):
        values = regular.load_json(path)
        evaluations = {int(step): math.nan if value is None else float(value) for step, value in values["evaluations"]}
        return Progress(evaluations, set(map(str, values["unreadable"])))


def of_events(events: Sequence[Event], files_of: FilesOf) -> Progress:
    """Return the progress of a run whose checkpoints are those of an older version and lack it.

    Args:
        events: of the run, as `journal.history` returns them.
        files_of: returns the items that a sample is made of.
    """
    progress = Progress()
    for event in events:
        if event["event"] == "eval":
            progress.evaluations[event["step"]] = event["accuracy"]
        elif event["event"] in ("bad", "unreadable"):
            progress.unreadable.update(files_of(event["name"]))
        elif event["event"] == "data_changed":
            progress.unreadable.difference_update(event["mended"])
    return progress
