"""Page of a comparison, module by module: one HTML file without scripts and without references to other files."""

import base64
from collections.abc import Mapping, Sequence

from zoo.compare.curves import Rows
from zoo.compare.differences import AFTER, Difference, Event
from zoo.compare.findings import Verdict
from zoo.weights import files

COLORS = {  # by the share of the limit
    "below 1 %": (0.01, "#b7e1cd"),
    "below 10 %": (0.1, "#d9efd0"),
    "below 50 %": (0.5, "#fdf0b5"),
    "below the limit": (1.0, "#fbd3a6"),
    "beyond it": (float("inf"), "#f4a59a"),
}
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
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Comparison of {{ title }}</title><style>
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; max-width: 1500px }
table { border-collapse: collapse; font-size: 12px } th, td { padding: 2px 8px; border: 1px solid #ddd }
th { position: sticky; top: 0; background: #f4f4f4; text-align: left }
td.number { text-align: right; font-family: monospace }
pre { background: #fbeaea; padding: 1em; white-space: pre-wrap } .good { background: #eaf6ea } code { font-size: 12px }
tr.first { outline: 3px solid #d62728 }
</style></head>
<body><h1>{{ title }}: {{ names | join(", ") }}</h1>
{% if problems %}
<h2>They do not agree</h2><pre>{{ problems | join("\n") }}</pre>
{% else %}
<h2>They agree</h2><pre class="good">{{ count }} tensors are equal within rounding.</pre>
{% endif %}
{% if image %}<h2>Loss</h2><img alt="losses and gradient norms" src="data:image/png;base64,{{ image }}">{% endif %}
<h2>Modules, in the order of the forward pass</h2>
<p>Each cell is the largest difference between any two frameworks, relative to the tensor's largest value. Colors
compare it with the limit that the measured rounding sets:
{% for name, (_, color) in colors.items() %}<span style="background:{{ color }}">{{ name }}</span> {% endfor %}.
<i>later</i> is the worst of all updates after the first and of the forward passes after them. Hover over a cell for the
numbers.</p>
<table><thead><tr>
<th>name</th><th>module and call</th>{% for column in columns %}<th>{{ column }}</th>{% endfor %}
</tr></thead><tbody>
{% for name, kind, site, is_first, cells in table %}
<tr{% if is_first %} class="first"{% endif %}><td>{{ name }}</td><td>{{ kind }} <code>{{ site }}</code></td>
{%- for cell in cells %}
{%- if cell %}<td class="number" style="background:{{ cell.color }}" title="{{ cell.hint }}">{{ cell.text }}</td>
{%- else %}<td></td>{% endif %}
{%- endfor %}</tr>
{% endfor %}
</tbody></table></body></html>
"""


def write(
    path: str, title: str, verdict: Verdict, rows: Rows, problems: Sequence[str], image: bytes | None = None
) -> None:
    """Write the page.

    Args:
        path: of the new file.
        title: name of the recipe.
        verdict: of the proofs.
        rows: the loss curves.
        problems: what does not agree.
        image: plot of the curves, PNG.

    Raises:
        UserError: the file exists or cannot be written.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(PAGE).render(
        title=title,
        names=list(rows),
        problems=problems,
        count=len(verdict.differences),
        image=base64.b64encode(image).decode() if image else "",
        colors=COLORS,
        columns=COLUMNS,
        table=_table(verdict),
    )
    with files.atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def _table(verdict: Verdict) -> list[tuple[str, str, str, bool, list[dict[str, str] | None]]]:
    """Return a row for each module and parameter: name, class, call, whether it differs first, and its cells."""
    cells: dict[str, dict[str, Difference]] = {}
    kinds: dict[str, tuple[str, str]] = {}
    first = next((_row_name(difference.event) for difference in verdict.differences if difference.is_beyond), None)
    for difference in verdict.differences:
        event, name = difference.event, _row_name(difference.event)
        row = cells.setdefault(name, {})
        column = _column(event)
        if column not in row or _share(difference) > _share(row[column]):
            row[column] = difference
        for call in event.calls.values():
            kinds.setdefault(name, (call.kind, next(iter(call.call_sites), "")))
    return [
        (name, *kinds.get(name, ("", "")), name == first, [_cell(cells[name].get(column)) for column in COLUMNS])
        for name in _ordered(cells)
    ]


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


def _cell(difference: Difference | None) -> dict[str, str] | None:
    if difference is None:
        return None
    share = _share(difference)
    hint = (
        f"{difference.event.stage}: largest difference {difference.largest:.2e}, limit {difference.limit:.2e}, "
        f"largest value {difference.magnitude:.2e}"
        + (f"; {', '.join(difference.apart)} apart" if difference.apart else "")
    )
    color = next(color for limit, color in COLORS.values() if share <= limit)
    return {"text": f"{difference.relative:.1e}", "color": color, "hint": hint}


def _column(event: Event) -> str:
    if event.stage in ("training", "evaluation") and event.part in ("input", "output"):
        return f"{event.stage} {event.part}"
    if event.stage.endswith(AFTER) or not event.stage.startswith("update 1"):
        return "later"
    return {"loss": "training output", "grad_norm": "gradient"}.get(event.part, event.part)


def _share(difference: Difference) -> float:
    """Return the difference as a multiple of its limit."""
    return difference.largest / max(difference.limit, 1e-300) if difference.largest else 0.0
