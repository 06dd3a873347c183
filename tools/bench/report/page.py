"""Page of a report: one HTML file without scripts and without references to other files."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from zoo.bench.report import formats
from zoo.bench.report.figures import Plot
from zoo.bench.report.tables import Table

STYLE = """
:root { color-scheme: light dark; --text: #222; --back: #fff; --line: #ccc; --head: #f0f0f0; --warn: #fdf0d5 }
@media (prefers-color-scheme: dark) {
  :root { --text: #ddd; --back: #181a1b; --line: #444; --head: #2a2d2e; --warn: #4a3a10 } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; padding: 0 1.5em; max-width: 1180px;
  color: var(--text); background: var(--back) }
h1, h2, h3 { overflow-wrap: anywhere } h2 { border-bottom: 1px solid var(--line); margin-top: 2em }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 12.5px; margin: 0.5em 0 }
th, td { padding: 3px 8px; border: 1px solid var(--line); text-align: left; vertical-align: top }
th { background: var(--head); vertical-align: bottom } td.text { white-space: nowrap }
td.long { min-width: 18em; max-width: 30em; overflow-wrap: anywhere }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.warnings { background: var(--warn); border: 1px solid var(--line); padding: 0.6em 1em 0.6em 2.2em }
.warnings li { overflow-wrap: anywhere } .note { font-size: 12.5px; opacity: 0.85 }
figure { margin: 1.2em 0 } figure svg { width: 100%; max-width: 920px; height: auto; display: block }
figcaption { font-size: 12.5px; opacity: 0.85; max-width: 920px }
@media print { :root { color-scheme: light; --text: #000; --back: #fff; --line: #bbb; --head: #eee; --warn: #fff }
  figure, tr { break-inside: avoid } h2, h3 { break-after: avoid } body { margin: 0; font-size: 11px }
  .wide { overflow: visible } table { font-size: 7px } th, td { padding: 1px 3px }
  td.text, td.long { white-space: normal; min-width: 0; overflow-wrap: anywhere } }
"""


class Section(NamedTuple):
    """The part of a report about one model.

    Attributes:
        title: name of the model.
        facts: lines about how it was measured.
        tables: those that have rows.
        plots: in order.
    """

    title: str
    facts: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[Plot]


def render(title: str, warnings: Sequence[str], sections: Sequence[Section], runs: Table) -> str:
    """Return the page.

    Args:
        title: of the report.
        warnings: for the reader, before anything else.
        sections: one per model.
        runs: table of all runs.
    """
    listed = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    contents = "".join(_section(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1>
{f'<ul class="warnings">{listed}</ul>' if listed else ""}
{contents}
<h2>Runs</h2>
{formats.html(runs)}
</body></html>
"""


def _section(section: Section) -> str:
    facts = "".join(f"<li>{escape(fact)}</li>" for fact in section.facts)
    tables = "".join(
        f"<h3>{escape(table.title)}</h3>{formats.html(table)}"
        + (f'<p class="note">{escape(table.note)}</p>' if table.note else "")
        for table in section.tables
    )
    figures = "".join(
        f"<h3>{escape(plot.title)}</h3><figure>{plot.svg()}<figcaption>{escape(plot.note)}</figcaption></figure>"
        for plot in section.plots
    )
    return f'<h2>{escape(section.title)}</h2><ul class="note">{facts}</ul>{tables}{figures}'
