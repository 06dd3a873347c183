"""Progress of a run beside its tensors: evaluations, unreadable data and losses; a file of each checkpoint."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from zoo.data.errors import parsing
from zoo.data.formats import regular
from zoo.logs import journal

FilesOf = Callable[[str], Sequence[str]]  # name of a sample -> names of its items


@dataclass
class Progress:
    """Progress of a run; that of rank 0 counts.

    Attributes:
        evaluations: accuracy by step, in order; NaN where it was not finite.
        unreadable: items of the data that could not be read and have not been mended since.
        losses: of every rank the sum of the losses since the last multiple of train.log_every, and their number.
    """

    evaluations: dict[int, float] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    losses: list[tuple[float, int]] = field(default_factory=list)
    by_epoch: dict[int, set[str]] = field(default_factory=dict)

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

    def mend(self, mended: Collection[str], files_of: FilesOf) -> None:
        """Forget items that can be read again."""
        self.unreadable.difference_update(mended)
        for epoch, names in self.by_epoch.items():
            self.by_epoch[epoch] = {name for name in names if not {*files_of(name)} & {*mended}}

    def content(self) -> bytes:
        evaluations, unreadable = list(self.evaluations.items()), sorted(self.unreadable)
        values = {"evaluations": evaluations, "unreadable": unreadable, "losses": self.losses}
        values |= {"by_epoch": [(epoch, sorted(names)) for epoch, names in self.by_epoch.items()]}
        return journal.json_text(values, indent=1).encode()


def parse_progress(path: str) -> Progress:
    """Read a file with the `content` of a progress. Raises UserError if it cannot be read."""
    with parsing(f"{path} cannot be read", "restore it from a copy, or go on from another checkpoint"):
        values = regular.load_json(path)
        evaluations = {int(step): _number(value) for step, value in values["evaluations"]}
        losses = [(_number(total), int(count)) for total, count in values.get("losses", [])]  # older ones lack it
        by_epoch = {int(epoch): set(map(str, names)) for epoch, names in values.get("by_epoch", [])}  # and this
        return Progress(evaluations, set(map(str, values["unreadable"])), losses, by_epoch)


def _number(value: Any) -> float:
    """Return a number of a JSON file, where those that are not finite are null."""
    return math.nan if value is None else float(value)
