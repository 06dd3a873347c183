"""Check AI-Rank training logs, of any project: read their events and list their deviations from the rules."""

import re
from decimal import Decimal
from typing import Any

from zoo import program
from zoo.bench.airank_log import deviations, measure, parse
from zoo.bench.options import count, natural
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError

EPILOG = """\
time_to_target, total_time and samples_per_s are computed from the time stamps by the definitions of the rules
(github.com/AI-Rank/AI-Rank); where test_finish is missing, samples_per_s counts up to the last evaluation.

example: %(prog)s runs/tsm_k400/airank.log --target 0.711 --samples 234619

Exit codes: 0 no deviation, 1 a log deviates, 2 a file cannot be read."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--target", type=accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    add("--samples", type=count, metavar="N", help="training samples per epoch, to compute avg_ips")
    add("--warmup-epochs", type=natural, default=0, metavar="N", help="epochs that avg_ips leaves out; default 0")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    require_new(arguments.json, "--json")
    options = (arguments.target, arguments.samples, arguments.warmup_epochs)
    reports = []
    for path in arguments.files:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                log = parse(file)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        reports.append({"file": path, **measure(log, *options), "deviations": deviations(log, *options)})
    print_report([line for report in reports for line in describe(report)], reports, arguments.json)
    return int(any(report["deviations"] for report in reports))


def describe(report: dict[str, Any]) -> list[str]:
    """Return the lines of a report on a log."""
    values = {key: value for key, value in report.items() if key not in ("file", "deviations") and value is not None}
    lines = [f"  {key:<19} {f'{value:.10g}' if isinstance(value, float) else value}" for key, value in values.items()]
    return [report["file"], *lines, *(f"  deviates: {text}" for text in report["deviations"] or ["nowhere"])]


def accuracy(text: str) -> Decimal:
    """Parse an accuracy above 0. Raises ValueError."""
    if not re.fullmatch(r"\d{0,9}\.?\d{1,20}", text) or not float(text):
        raise ValueError
    return Decimal(text)
