"""Page of a comparison, module by module: one HTML file without scripts and without references to other files."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from zoo.compare.curves import Rows
from zoo.compare.differences import Difference
from zoo.compare.events import AFTER, Event
from zoo.compare.findings import Verdict
from zoo.weights import files

COLORS = ("#b7e1cd", "#d9efd0", "#fdf0b5", "#fbd3a6", "#f4a59a")  # from far below the limit to beyond it
LINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
WIDTH, HEIGHT, MARGIN = 720, 240, 30  # of the plot, in pixels
COLUMNS = (
    "training input",
    "training output",
    "evaluation input",
    "evaluation output",
    "gradient",
    "change",
    "statistic",
    "optimizer",
    "later",
)
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; max-width: 1500px }
table { border-collapse: collapse; font-size: 12px } th, td { padding: 2px 8px; border: 1px solid #ddd }
th { position: sticky; top: 0; background: #f4f4f4; text-align: left }
td.number { text-align: right; font-family: monospace }
pre { background: #fbeaea; padding: 1em; white-space: pre-wrap } .good { background: #eaf6ea } code { font-size: 12px }
tr:target, tr.first { outline: 3px solid #d62728 }
"""


def write(path: str, title: str, verdict: Verdict, rows: Rows, problems: Sequence[str]) -> None:
    """Write the page.

    Args:
        path: of the new file.
        title: name of the recipe.
        verdict: of the proofs.
        rows: the loss curves.
        problems: what does not agree.

    Raises:
        UserError: the file exists or cannot be written.
    """
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Comparison of {escape(title)}</title><style>{STYLE}</style></head>
<body><h1>{escape(title)}: {escape(", ".join(rows))}</h1>
{_summary(verdict, problems)}
{_plot(rows)}
<h2>Modules, in the order of the forward pass</h2>
<p>Each cell is the largest difference between any two frameworks, relative to the tensor's largest value. Colors
compare it with the limit that the measured rounding sets: {_legend()}. <i>later</i> is the worst of all updates after
the first and of the forward passes after them. Hover over a cell for the numbers.</p>
{_table(verdict)}
</body></html>
"""
    with files.atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def _summary(verdict: Verdict, problems: Sequence[str]) -> str:
    count = len(verdict.differences)
    if problems:
        return f"<h2>They do not agree</h2><pre>{escape(chr(10).join(problems))}</pre>"
    return f'<h2>They agree</h2><pre class="good">{count} tensors are equal within rounding.</pre>'


def _legend() -> str:
    titles = ("below 1 %", "below 10 %", "below 50 %", "below the limit", "beyond it")
    return ", ".join(f'<span style="background:{color}">{title}</span>' for color, title in zip(COLORS, titles))


def _plot(rows: Rows) -> str:
    """Return the loss curves as an image."""
    losses = {name: [row.loss for row in values if math.isfinite(row.loss)] for name, values in rows.items()}
    points = [loss for values in losses.values() for loss in values]
    if len(points) < 2:
        return ""
    low, high, steps = min(points), max(points), max(map(len, losses.values()))
    parts = [f'<h2>Loss</h2><svg width="{WIDTH}" height="{HEIGHT}" role="img">']
    for number, (name, values) in enumerate(losses.items()):
        color = LINES[number % len(LINES)]
        line = " ".join(
            f"{MARGIN + (WIDTH - 2 * MARGIN) * step / max(steps - 1, 1):.1f},"
            f"{MARGIN + (HEIGHT - 2 * MARGIN) * (high - loss) / max(high - low, 1e-30):.1f}"
            for step, loss in enumerate(values)
        )
        dashes = 4 * number
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="8 {dashes}"/>'
            f'<text x="{WIDTH - 160}" y="{20 + 16 * number}" fill="{color}">{escape(name)}</text>'
        )
    parts.append(f'<text x="0" y="{MARGIN}">{high:.4g}</text><text x="0" y="{HEIGHT - MARGIN}">{low:.4g}</text></svg>')
    return "".join(parts)


def _table(verdict: Verdict) -> str:
    """Return the table of all modules and their parameters."""
    cells: dict[str, dict[str, Difference]] = {}
    kinds: dict[str, str] = {}
    first = next((_row_name(difference.event) for difference in verdict.differences if difference.is_beyond), None)
    for difference in verdict.differences:
        event, name = difference.event, _row_name(difference.event)
        row = cells.setdefault(name, {})
        column = _column(event)
        if column not in row or _share(difference) > _share(row[column]):
            row[column] = difference
        for call in event.calls.values():
            kinds.setdefault(name, f"{escape(call.kind)} <code>{escape(next(iter(call.call_sites), ''))}</code>")
    head = "".join(f"<th>{column}</th>" for column in ("name", "module and call", *COLUMNS))
    body = "".join(_row(name, kinds.get(name, ""), cells[name], name == first) for name in _ordered(cells))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row_name(event: Event) -> str:
    return event.name.removeprefix("momentum/") or "(the model)"


def _ordered(cells: Mapping[str, Mapping[str, Difference]]) -> list[str]:
    """Return the names of the rows, parameters below their modules."""
    position = {name: number for number, name in enumerate(cells)}
    modules = {name for name, row in cells.items() if "training output" in row}

    def key(name: str) -> tuple[int, int]:
        module = name if name in modules else name.rpartition(".")[0]
        return position.get(module, position[name]), position[name]

    return sorted(cells, key=key)


def _row(name: str, kind: str, row: Mapping[str, Difference], is_first: bool) -> str:
    marked = ' class="first"' if is_first else ""
    numbers = "".join(_cell(row.get(column)) for column in COLUMNS)
    return f"<tr{marked}><td>{escape(name)}</td><td>{kind}</td>{numbers}</tr>"


def _cell(difference: Difference | None) -> str:
    if difference is None:
        return "<td></td>"
    share = _share(difference)
    color = COLORS[next((i for i, limit in enumerate((0.01, 0.1, 0.5, 1.0)) if share <= limit), 4)]
    hint = (
        f"{difference.event.stage}: largest difference {difference.largest:.2e}, limit {difference.limit:.2e}, "
        f"largest value {difference.magnitude:.2e}"
        + (f"; {', '.join(difference.apart)} apart" if difference.apart else "")
    )
    return f'<td class="number" style="background:{color}" title="{escape(hint)}">{difference.relative:.1e}</td>'


def _column(event: Event) -> str:
    if event.stage in ("training", "evaluation") and event.part in ("input", "output"):
        return f"{event.stage} {event.part}"
    if event.stage.endswith(AFTER) or not event.stage.startswith("update 1"):
        return "later"
    return {"loss": "training output", "grad_norm": "gradient"}.get(event.part, event.part)


def _share(difference: Difference) -> float:
    """Return the difference as a multiple of its limit."""
    return difference.largest / max(difference.limit, 1e-300) if difference.largest else 0.0
