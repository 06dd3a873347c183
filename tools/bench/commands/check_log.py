"""Check AI-Rank training logs, of any project: read their events and list their deviations from the rules."""

import argparse
import json
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from zoo.bench.airank_log.grammar import parse
from zoo.bench.airank_log.rules import deviations
from zoo.bench.airank_log.values import measure

MAX_DIGITS = 15  # of a number of samples or epochs
EPILOG = """\
time_to_target, total_time and samples_per_s are computed from the time stamps by the definitions of the rules
(github.com/AI-Rank/AI-Rank); where test_finish is missing, samples_per_s counts up to the last evaluation.

example: python tools/check_log.py runs/tsm_k400/airank.log --target 0.711 --samples 234619 --strict

Exit codes: 0 read, 1 --strict and a log deviates, 2 a file cannot be read."""


def render(report: dict[str, Any]) -> str:
    """Format a report as text."""
    values = {key: value for key, value in report.items() if key not in ("file", "deviations") and value is not None}
    lines = [f"  {key:<19} {f'{value:.10g}' if isinstance(value, float) else value}" for key, value in values.items()]
    return "\n".join([report["file"]] + lines + [f"  deviates: {text}" for text in report["deviations"] or ["nowhere"]])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--target", type=accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    add("--samples", type=_at_least(1), metavar="N", help="training samples per epoch, to compute avg_ips")
    add("--warmup-epochs", type=_at_least(0), default=0, metavar="N", help="epochs that avg_ips leaves out; default 0")
    add("--strict", action="store_true", help="exit 1 if a log deviates from a rule")
    add("--json", action="store_true", help="print a JSON list instead of text")
    arguments = parser.parse_args(argv)
    options = (arguments.target, arguments.samples, arguments.warmup_epochs)
    reports = []
    for path in arguments.files:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                log = parse(file)
        except OSError as error:
            print(f"error: {path}: cannot be read ({error.strerror})", file=sys.stderr)
            return 2
        reports.append({"file": path, **measure(log, *options), "deviations": deviations(log, *options)})
    print(json.dumps(reports, indent=1) if arguments.json else "\n".join(map(render, reports)))
    return int(arguments.strict and any(report["deviations"] for report in reports))


def _at_least(least: int) -> Callable[[str], int]:
    """Return a function that parses a whole number from `least` on."""

    def number(text: str) -> int:
        if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
        return int(text)

    return number


def accuracy(text: str) -> Decimal:
    """Parse an accuracy above 0. Raises ValueError."""
    if not re.fullmatch(r"\d*\.?\d+", text) or not float(text):
        raise ValueError
    return Decimal(text)
