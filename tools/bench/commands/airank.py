"""Turn runs into submissions to AI-Rank and logs for MLPerf, and check and summarize submissions."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from zoo.bench.submission import check, rules, runs, summary, system, tree
from zoo.data.errors import UserError
from zoo.logs import mllog

EPILOG = """\
examples
  python tools/airank.py system runs/tsm_k400 --submitter ACME --hardware-name "ACME X1" --hardware-type datacenter
  python tools/airank.py submit --out submission --submitter ACME --runs 1=runs/one 8=runs/eight 32=runs/all
  python tools/airank.py check submission
  python tools/airank.py summary submission
  python tools/airank.py mllog runs/tsm_k400 --submitter ACME --out mllog.txt

Rules: github.com/AI-Rank/AI-Rank, docs/software/train.md; docs/airank.md explains what is checked.
Exit codes: 0 done, 1 the tree that was checked has problems, 2 something to fix on your side."""
CHECK_EPILOG = """\
Every file and value that the rules demand is checked from the tree alone: Time2train, best accuracy and avg_ips are
recomputed from the logs.

example: python tools/airank.py check submission"""
SUBMIT_EPILOG = """\
Fields of system_information.json come from the record of the run with the most cards; the options give what a machine
cannot know, or replace it. Nothing is written if anything is missing: all of it is listed.

example: python tools/airank.py submit --out submission --submitter ACME --runs 1=runs/one 8=runs/eight \\
             --hardware-name "ACME X1" --hardware-type datacenter --host-storage-type SSD"""
MLLOG_EPILOG = """\
Check the file with github.com/mlcommons/logging (pip install mlperf-logging). ResNet by MLPerf's own rules, the other
models by this project's, whose path must be absolute:

  python -m mlperf_logging.compliance_checker --ruleset 4.0.0 mllog.txt
  python -m mlperf_logging.compliance_checker --ruleset 4.0.0 --config $PWD/tools/submission/mlperf_rules/tsm.yaml \\
      mllog.txt"""


def system_command(arguments: argparse.Namespace) -> int:
    """Print or write system_information.json of a run."""
    fields = system.describe(runs.read(arguments.run).begin, _given(arguments))
    unknown = [f"--{name.replace('_', '-')}" for name in system.unknown(fields)]
    if unknown:
        raise UserError(f"{arguments.run} does not tell every field; give {' and '.join(unknown)}")
    text = system.render(fields)
    wrong = system.problems(text)
    if wrong:
        raise UserError("; ".join(wrong))
    _write_new(text, arguments.out)
    return 0


def submit_command(arguments: argparse.Namespace) -> int:
    """Write the tree of a submission."""
    plan = tree.plan(_scales(arguments.runs), _given(arguments), arguments.model)
    if plan.missing and not arguments.demo:
        raise UserError(
            "this cannot be submitted yet, nothing was written:\n"
            + "".join(f"  - {line}\n" for line in plan.missing)
            + "  --demo writes it nevertheless, marked as a demo"
        )
    tree.write(arguments.out, plan.files)
    mark = f", marked as a demo ({len(plan.missing)} things are missing)" if plan.missing else ""
    print(f"wrote {arguments.out}: {len(plan.files)} files{mark}")
    return 0


def check_command(arguments: argparse.Namespace) -> int:
    """Check a tree."""
    result = check.check(arguments.tree)
    if arguments.json:
        print(json.dumps(result._asdict(), indent=1))
    else:
        for line in [f"problem: {text}" for text in result.problems] + [f"note: {text}" for text in result.notes]:
            print(line)
        print(f"{arguments.tree}: {len(result.problems)} problems, {result.logs} logs read")
    return int(bool(result.problems))


def summary_command(arguments: argparse.Namespace) -> int:
    """Print the table of trees and runs."""
    found = summary.rows(arguments.paths, arguments.target)
    print(json.dumps(summary.report(found), indent=1) if arguments.json else summary.table(found), end="")
    print(end="\n" if arguments.json else "")
    return 0


def mllog_command(arguments: argparse.Namespace) -> int:
    """Print or write the MLPerf log of a run."""
    run = runs.read(arguments.run)
    if run.begin.get("speed"):
        raise UserError(f"{arguments.run} is a run of --speed, which trains to no target: MLPerf has no log of it")
    submission = mllog.Submission(arguments.submitter, arguments.division, arguments.status, arguments.platform)
    lines = mllog.lines(run.events, submission)
    _write_new("".join(f"{line}\n" for line in lines), arguments.out)
    if not any('"key": "run_stop"' in line for line in lines):
        print(f"warning: {arguments.run} is unfinished; the log has no run_stop", file=sys.stderr)
    return 0


def _scales(pairs: list[str]) -> dict[int, runs.Run]:
    """Read the runs of `CARDS=RUN` arguments. Raises UserError."""
    scales: dict[int, runs.Run] = {}
    for pair in pairs:
        cards, equals, folder = pair.partition("=")
        if not equals or not re.fullmatch(r"\d{1,5}", cards) or int(cards) not in rules.CARDS:
            choices = ", ".join(map(str, rules.CARDS))
            raise UserError(f"--runs {pair}: expected CARDS=RUN with {choices} cards, such as 8=runs/tsm_k400")
        if int(cards) in scales:
            raise UserError(f"--runs {pair}: {cards} cards are given twice")
        scales[int(cards)] = runs.read(folder)
    models = sorted({run.begin["model"] for run in scales.values()})
    if len(models) > 1:
        raise UserError(f"--runs: these are runs of {' and '.join(models)}; submit one model at a time")
    return scales


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in rules.FIELDS}


def _write_new(text: str, path: str | None) -> None:
    """Print a text, or write it to a new file. Raises UserError."""
    if path is None:
        print(text, end="")
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path} exists; name another file, nothing is overwritten") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _add_fields(parser: argparse.ArgumentParser, required: str = "") -> None:
    """Add an option for every field of system_information.json."""
    group = parser.add_argument_group("fields of system_information.json")
    for name, field in rules.FIELDS.items():
        option, metavar = f"--{name.replace('_', '-')}", "N" if field.kind is int else "TEXT"
        text = f"such as {field.example}"
        group.add_argument(option, type=field.kind, metavar=metavar, required=name == required, help=text)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG, formatter_class=form)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, epilog: str = EPILOG) -> Any:
        one = commands.add_parser(name, help=text, description=text, epilog=epilog, formatter_class=form)
        one.set_defaults(run_command=run)
        return one

    one = command("system", system_command, "print system_information.json of a run")
    one.add_argument("run", metavar="RUN", help="folder of the run")
    one.add_argument("--out", metavar="FILE", help="write it to a new file instead")
    _add_fields(one)

    one = command("submit", submit_command, "write the tree of a submission", SUBMIT_EPILOG)
    one.add_argument("--out", metavar="TREE", required=True, help="new folder")
    one.add_argument("--runs", metavar="CARDS=RUN", nargs="+", required=True, help="runs with 1, 8 and 32 cards")
    one.add_argument("--model", metavar="NAME", help="folder of the model, such as tsm_torch; default its name")
    one.add_argument("--demo", "--force", action="store_true", help="write what is incomplete too, marked as a demo")
    _add_fields(one, required="submitter")

    one = command("check", check_command, "check the tree of a submission, anybody's", CHECK_EPILOG)
    one.add_argument("tree", metavar="TREE", help="folder that holds submitter/system/...")
    one.add_argument("--json", action="store_true", help="print JSON instead of text")

    one = command("summary", summary_command, "print the reviewers' table of trees and runs")
    one.add_argument("paths", metavar="TREE|RUN", nargs="+")
    one.add_argument("--target", type=_accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    one.add_argument("--json", action="store_true", help="print JSON instead of Markdown")

    one = command("mllog", mllog_command, "print the MLPerf log of a run", MLLOG_EPILOG)
    one.add_argument("run", metavar="RUN", help="folder of the run")
    one.add_argument("--out", metavar="FILE", help="write it to a new file instead")
    one.add_argument("--submitter", metavar="NAME", default="unknown", help="submission_org; default unknown")
    one.add_argument("--platform", metavar="NAME", help="submission_platform; default hosts x accelerators of the run")
    one.add_argument("--division", choices=mllog.DIVISIONS, default="open", help="default open")
    one.add_argument("--status", choices=mllog.STATUSES, default="research", help="default research")
    return parser


def _accuracy(text: str) -> Decimal:
    """Parse an accuracy above 0. Raises ValueError."""
    if not re.fullmatch(r"\d{0,9}\.?\d{1,20}", text) or not float(text):
        raise ValueError
    return Decimal(text)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run_command(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
