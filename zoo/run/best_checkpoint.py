"""The best checkpoint of a run, by what its journal and its checkpoints tell after a kill or a damage."""

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing
from zoo.logs.journal import Event, Journal, NullJournal
from zoo.run import checkpoint


class Best(NamedTuple):
    """Step and accuracy of the best checkpoint."""

    step: int
    accuracy: float


def find(folder: str, events: Sequence[Event], before: float = math.inf) -> Best | None:
    """Return the best checkpoint that exists, the first one among equals; None without a finite evaluation.

    A kill may come between an evaluation and its event or its link, a power cut may take events with it, and a
    checkpoint may have been damaged or removed. So metrics beside checkpoints count as well as events.

    Args:
        folder: of the run.
        events: of the run, as `journal.history` returns them.
        before: only earlier steps count.
    """
    accuracies = {event["step"]: event["accuracy"] for event in events if event["event"] == "eval"}
    kept = {
        step: accuracies[step] if step in accuracies else _evaluated(path)
        for step, path in checkpoint.steps(folder)
        if step < before
    }
    found = [Best(step, value) for step, value in kept.items() if value is not None and math.isfinite(value)]
    return max(found, key=lambda best: (best.accuracy, -best.step), default=None)


def restore_links(folder: str, journal: Journal | NullJournal, step: int) -> None:
    """Link `last` and `best` of a run that goes on, by what its checkpoints and its journal tell.

    Args:
        folder: of the run.
        journal: of the run; it gets an event where another checkpoint is the best than it says, unless the evaluation
            of that checkpoint has no event itself and is repeated, which adds both.
        step: updates done so far.
    """
    if step:
        checkpoint.link(folder, "last", step)
    best, told, evaluated = find(folder, journal.events), journal.last("best"), journal.last("eval")
    if best:
        checkpoint.link(folder, "best", best.step)
        is_told = told is not None and told["step"] == best.step
        is_repeated = best.step == step and (evaluated is None or evaluated["step"] != step)
        if not is_told and not is_repeated:
            journal.add("best", step=best.step, path=checkpoint.path_of(folder, best.step))


def _evaluated(path: str) -> float | None:
    """Return the accuracy that is written beside a checkpoint, None if there is none."""
    file = os.path.join(path, checkpoint.EVALUATION)
    with suppress(UserError), parsing(file):
        value = budgeted_json.load(file)["accuracy"]
        return float(value) if isinstance(value, int | float) else None
    return None
