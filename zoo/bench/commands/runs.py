"""List runs and compare them: one line each; those with the same protocol side by side, the best first."""

import time
from collections.abc import Sequence
from typing import Any

from zoo import program
from zoo.bench.commands.report import read
from zoo.bench.report.runs import Run, natural
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.logs.lines import duration
from zoo.table import table, terminal_width

PRINTED = {
    "best": "{:.4f}".format,
    "time": duration,
    "began": lambda began: time.strftime("%Y-%m-%d %H:%M", time.localtime(began)),
}

SPARED = ("recipe", "framework", "began", "protocol", "time", "steps", "metric")  # columns, in this order


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0, or 2 where a folder holds no run."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    rows = [_row(run) for run in sorted(read(arguments.paths, None, None), key=_order)]
    cells = [[PRINTED[key](value) if key in PRINTED and value else value for key, value in row.items()] for row in rows]
    print_report(_lines(cells, list(rows[0])), {"runs": rows}, arguments.json)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, "Default: the runs below runs/.")
    parser.add_argument("paths", nargs="*", default=["runs"], metavar="FOLDER", help="of a run, or above runs")
    add_json_argument(parser)
    return parser


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


def _row(run: Run) -> dict[str, Any]:
    case = {"run": run.path, "recipe": run.case.recipe, "framework": run.case.framework, "protocol": run.protocol}
    reached = {"metric": run.metric, "best": run.values.best, "steps": run.steps, "time": run.values.total_time}
    return {**case, **reached, "began": run.began, "state": ": ".join(filter(None, (run.state, run.remark)))}
