"""Tables of the results in Markdown, and the page that holds them between two marks."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.bench.gpu_checks import plan
from zoo.bench.gpu_checks.results import DONE, FAILED, SKIPPED, Result
from zoo.bench.matrix.folder import write
from zoo.bench.report.columns import Column
from zoo.bench.report.formats import markdown
from zoo.bench.report.tables import Table
from zoo.data.errors import UserError

BEGIN, END = "<!-- results of tools/gpu_check.py: begin -->", "<!-- results of tools/gpu_check.py: end -->"
OPERATORS = 10
Row = dict[str, Any]


def _number(digits: int) -> Callable[[Any], str]:
    return lambda value: f"{value:,.{digits}f}"


def _percent(value: Any) -> str:
    return f"{value:.1%}"


def _small(value: Any) -> str:
    return f"{value:.1e}"


def _yes(value: Any) -> str:
    return "yes" if value else "no"


MODEL, FRAMEWORK, ARITHMETIC, DATA = (
    Column("model", "model", str),
    Column("framework", "framework", str),
    Column("arithmetic", "arithmetic", str),
    Column("data", "data", str),
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    plan.DOCTOR: (
        Column("section", "section", str),
        Column("topic", "topic", str),
        Column("state", "state", str),
        Column("text", "finding", str),
    ),
    plan.SPEED: (
        MODEL,
        FRAMEWORK,
        ARITHMETIC,
        DATA,
        Column("batch", "batch", str),
        Column("samples_per_s", "samples/s", _number(1)),
        Column("ms", "ms per update", _number(2)),
        Column("mfu", "MFU", _percent),
        Column("peak", "of the peak in", str),
        Column("device_mib", "device MiB", _number(0)),
        Column("host_mib", "host MiB", _number(0)),
        Column("data_wait", "waiting for data", _percent),
    ),
    plan.PARITY: (
        MODEL,
        FRAMEWORK,
        Column("size", "size", str),
        Column("compute", "numbers", str),
        *(Column(part, part, _small) for part in ("loss", "prediction", "weights", "statistics", "gradient", "change")),
        Column("equal", "within the limit", _yes),
    ),
    plan.DEMOS: (
        MODEL,
        FRAMEWORK,
        ARITHMETIC,
        DATA,
        Column("first_loss", "first loss", _number(3)),
        Column("last_loss", "last loss", _number(3)),
        Column("metric", "metric", str),
        Column("best", "best", _number(4)),
        Column("target", "target", str),
        Column("seconds", "seconds", _number(0)),
    ),
    plan.RESUME: (
        FRAMEWORK,
        Column("steps", "updates", str),
        Column("killed_after_step", "killed after", str),
        Column("largest_difference", "largest difference of a loss", _small),
        Column("equal_losses", "equal losses", _yes),
        Column("equal_weights", "equal weights", _yes),
    ),
    plan.DETERMINISTIC: (
        MODEL,
        FRAMEWORK,
        ARITHMETIC,
        Column("steps", "updates", str),
        Column("equal_losses", "equal losses", _yes),
        Column("equal_weights", "equal weights", _yes),
        Column("largest_difference", "largest difference of a loss", _small),
    ),
    plan.COMPARE: (
        MODEL,
        Column("steps", "updates", str),
        Column("agree", "they agree", _yes),
        Column("largest_difference", "largest difference of a loss", _small),
    ),
    plan.TOGETHER: (
        MODEL,
        FRAMEWORK,
        Column("alone", "alone, samples/s", _number(1)),
        Column("first", "first of two", _number(1)),
        Column("second", "second of two", _number(1)),
        Column("gain", "both / alone", _number(2)),
    ),
    plan.PEERS: (
        MODEL,
        ARITHMETIC,
        Column("batch", "batch", str),
        Column("peer", "other project", str),
        Column("ours_ms", "this trainer, ms", _number(2)),
        Column("peer_ms", "other project, ms", _number(2)),
        Column("ratio", "this trainer's time / its", _number(2)),
    ),
    plan.PROFILE: (
        MODEL,
        Column("operator", "operator", str),
        Column("ms", "ms per update", _number(3)),
        Column("share", "share", _percent),
        Column("calls", "calls", _number(1)),
    ),
}


def rows_of(group: str, result: Result) -> list[Row]:
    """Return the rows of a step's result."""
    values = {**result["facts"], **result["values"]}
    if group == plan.DOCTOR:
        return list(values["findings"])
    if group == plan.PROFILE:
        total = values["ms"]
        return [
            {"model": values["model"], "operator": operator["name"], "ms": operator["ms"],
             "share": operator["ms"] / total, "calls": operator["calls"]}
            for operator in values["operators"][:OPERATORS]
        ]  # fmt: skip
    if group == plan.TOGETHER:
        values["first"], values["second"] = values["together"]
    if group == plan.PARITY:
        values["equal"] = not values["beyond"]
    return [values]


def lines(steps: Sequence[plan.Step], results: Mapping[str, Result], heading: str = "###") -> list[str]:
    """Return the tables of all results, and what failed, was skipped or is left.

    Args:
        steps: of the check, in order.
        results: by names of steps.
        heading: marks of a heading.
    """
    text = [*_device(results)]
    done = {step.name for step in steps if results.get(step.name, {}).get("state") == DONE}
    for group, title in plan.GROUPS.items():
        members = [step for step in steps if step.group == group and step.name in done]
        if members and group in COLUMNS:
            columns = COLUMNS[group]
            rows = [
                {column.key: row.get(column.key) for column in columns}
                for step in members
                for row in rows_of(group, results[step.name])
            ]
            text += ["", f"{heading} {title}", "", *markdown(Table(group, title, "", columns, rows))]
    return text + _rest(steps, results, heading)


def _device(results: Mapping[str, Result]) -> list[str]:
    """Return on which devices, with which versions and when the speeds were measured."""
    found = [result for result in results.values() if result["state"] == DONE and "version" in result["values"]]
    places = sorted({(r["values"]["device"] or "?", r["facts"]["framework"], r["values"]["version"]) for r in found})
    return [f"- {framework} {version} on {device}" for device, framework, version in places]


def _rest(steps: Sequence[plan.Step], results: Mapping[str, Result], heading: str) -> list[str]:
    text: list[str] = []
    for state, title in ((FAILED, "Failed"), (SKIPPED, "Skipped")):
        members = [step.name for step in steps if results.get(step.name, {}).get("state") == state]
        if members:
            text += ["", f"{heading} {title}", "", *(f"- {name}: {_line(results[name]['reason'])}" for name in members)]
    left = [step.name for step in steps if step.name not in results]
    if left:
        text += ["", f"{heading} Not run yet", "", ", ".join(left)]
    return text


def _line(reason: str) -> str:
    return json.dumps(" ".join(reason.split()), ensure_ascii=False)[1:-1]


def require_marks(page: Path) -> tuple[str, str]:
    """Return what a page has before and after the marks.

    Raises:
        UserError: the page cannot be read, or lacks the marks.
    """
    try:
        before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    except OSError as error:
        raise UserError(f"--page {page}: {error.strerror}") from None
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"--page {page}: it lacks the lines {BEGIN} and {END}")
    return before, after


def update(page: Path, text: Sequence[str]) -> None:
    """Replace what a page has between the marks.

    Raises:
        UserError: the page cannot be read or written, or lacks the marks.
    """
    before, after = require_marks(page)
    try:
        write(page, f"{before}{BEGIN}\n" + "\n".join(text).strip("\n") + f"\n{END}{after}")
    except OSError as error:
        raise UserError(f"--page {page}: {error.strerror}") from None
