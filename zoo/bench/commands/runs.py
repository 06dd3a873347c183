"""List runs and compare them: one line each; those with the same protocol side by side, the best first."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo import program
from zoo.bench.commands.report import read
from zoo.bench.report.runs import Point, Run, natural
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.logs.lines import duration
from zoo.table import table, terminal_width

PRINTED = {
    "best": "{:.4f}".format,
    "time": duration,
    "began": lambda began: time.strftime("%Y-%m-%d %H:%M", time.localtime(began)),
}

BARS = "▁▂▃▄▅▆▇█"
CURVE = 24  # bars of a curve, at most
SPARED = ("recipe", "framework", "began", "protocol", "time", "steps", "metric")  # columns, in this order


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 where a folder holds no run."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    runs = sorted(read(arguments.paths, None, None), key=_order)
    rows = [_row(run) for run in runs]
    cells = [[_cell(*item) for item in row.items()] for row in rows]
    lines = _lines(cells, list(rows[0]))
    if arguments.plot:
        curves = [(run.path, curve(run.losses), run.metric or "", curve(run.metrics)) for run in runs]
        lines += ["", *table(curves, ("run", "training loss", "", "main metric"))]
    print_report(lines, {"runs": rows}, arguments.json)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, "Default: the runs below runs/.")
    parser.add_argument("paths", nargs="*", default=["runs"], metavar="FOLDER", help="of a run, or above runs")
    parser.add_argument("--plot", action="store_true", help="also draw the loss and the main metric of each run")
    add_json_argument(parser)
    return parser


def curve(points: Sequence[Point]) -> str:
    """Return the first and the last value, with bars between them: of all values, or of means over equal parts."""
    values = np.array([point.value for point in points])
    if not len(values):
        return ""
    parts = [float(part.mean()) for part in np.array_split(values, min(CURVE, len(values)))]
    finite = [part for part in parts if math.isfinite(part)]
    low, span = min(finite, default=0.0), (max(finite, default=0.0) - min(finite, default=0.0)) or 1.0
    heights = [round((part - low) / span * (len(BARS) - 1)) if math.isfinite(part) else None for part in parts]
    bars = "".join("?" if height is None else BARS[height] for height in heights)
    return f"{values[0]:.4f} {bars} {values[-1]:.4f}"


def _lines(cells: Sequence[Sequence[Any]], titles: Sequence[str]) -> list[str]:
    """Return the table, in a narrow terminal without the columns that say least, which a last line names."""
    width, hidden = terminal_width(), list[str]()
    while True:
        shown = [at for at, title in enumerate(titles) if title not in hidden]
        lines = table([[row[at] for at in shown] for row in cells], [titles[at] for at in shown])
        if width is None or max(map(len, lines)) <= width or len(hidden) == len(SPARED):
            break
        hidden.append(SPARED[len(hidden)])
    return [*lines, f"not shown in {width} columns: {', '.join(hidden)}"] if hidden else lines


def _order(run: Run) -> tuple[Any, ...]:
    return run.protocol or "", run.values.best is None, -(run.values.best or 0), natural(run.path)


def _cell(key: str, value: Any) -> Any:
    return PRINTED[key](value) if key in PRINTED and value is not None else value


def _row(run: Run) -> dict[str, Any]:
    case = {"run": run.path, "recipe": run.case.recipe, "framework": run.case.framework, "protocol": run.protocol}
    reached = {"metric": run.metric, "best": run.values.best, "steps": run.steps, "time": run.values.total_time}
    return {**case, **reached, "began": run.began, "state": ": ".join(filter(None, (run.state, run.remark)))}
