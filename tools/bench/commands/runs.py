"""List runs and compare them: one line each; those with the same protocol, which can be compared, best first."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from zoo import program
from zoo.bench.commands.report import read
from zoo.bench.report.runs import Run, natural
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.logs.lines import duration
from zoo.table import table

EPILOG = """\
examples
  %(prog)s                        those in runs/
  %(prog)s runs/a runs/sweep --json

Exit codes: 0 listed, 2 an error to fix on your side, for example a folder without a run."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    require_new(arguments.json, "--json")
    rows = [row(run) for run in sorted(read(arguments.paths, None, None), key=order)]
    printed = [list({**each, "began": _date(each["began"]), "time": _time(each["time"])}.values()) for each in rows]
    print_report(table(printed, list(rows[0])), {"runs": rows}, arguments.json)
    return 0


def order(run: Run) -> tuple[Any, ...]:
    """Return a key that sorts runs by protocol, then by their best metric, the best first."""
    return run.protocol or "", run.values.best is None, -(run.values.best or 0), natural(run.path)


def row(run: Run) -> dict[str, Any]:
    """Return what is listed of a run; None where it is not known."""
    best = run.values.best
    return {
        "run": run.path,
        "recipe": run.case.recipe,
        "framework": run.case.framework,
        "protocol": run.protocol,
        "metric": run.metric,
        "best": None if best is None else round(best, 4),
        "steps": run.steps,
        "time": run.values.total_time,
        "began": run.began,
        "state": run.state if not run.remark else f"{run.state}: {run.remark}",
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("paths", nargs="*", default=["runs"], metavar="FOLDER", help="of a run or above runs")
    add_json_argument(parser)
    return parser.parse_args(argv)


def _date(began: float | None) -> str | None:
    return None if began is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(began))


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
