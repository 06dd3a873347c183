"""What the folder of a benchmark matrix says beside its runs: their variants, and cases that have no runs."""

import os
from pathlib import Path
from typing import Any

from zoo.bench.report.fields import items, text, whole
from zoo.bench.report.run import FAILED, SKIPPED, Case, Run, Values
from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing

MATRIX, RESULTS = "matrix.json", "results.json"
DEPTH = 5  # of a run below its variant: framework, model, bz<batch>, <N>n<G>g, run
STATES = {"skipped": SKIPPED, "failed": FAILED}


def root_of(folder: str) -> str | None:
    """Return the folder of the matrix that a run belongs to; None if there is none."""
    path = Path(os.path.abspath(folder))
    return next((str(above) for above in path.parents[: DEPTH + 1] if (above / MATRIX).is_file()), None)


def variant(folder: str) -> str | None:
    """Return the variant of a run, such as the checkout that it ran: a folder above the framework's; None without."""
    root = root_of(folder)
    parts = Path(os.path.abspath(folder)).relative_to(root).parts if root else ()
    return parts[0] if len(parts) == DEPTH + 1 else None


def without_runs(root: str) -> list[Run]:
    """Return the cases of a matrix that have no run, with the reason; none if results.json is missing or damaged."""
    path = os.path.join(root, RESULTS)
    try:
        with parsing(path):
            content: Any = budgeted_json.load(path)
    except UserError:
        return []
    return [
        Run(path, STATES[state], text(case, "reason") or "", _case(case), Values())
        for case in items(content, "cases")
        if (state := text(case, "status")) in STATES and not whole(case, "count")
    ]


def _case(case: Any) -> Case:
    return Case(
        model=text(case, "model"),
        recipe=text(case, "recipe"),
        variant=text(case, "variant"),
        framework=text(case, "framework"),
        precision=text(case, "precision"),
        batch=whole(case, "batch"),
        nodes=whole(case, "hosts"),
        cards=whole(case, "processes"),
    )
