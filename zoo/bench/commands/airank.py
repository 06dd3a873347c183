"""Turn runs into submissions to AI-Rank and logs for MLPerf, and check and summarize submissions."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from zoo import program
from zoo.bench.airank_log import accuracy
from zoo.bench.submission import check, rules, runs, tree
from zoo.commands.new_file import add_json_argument, print_report, require_new, write_new
from zoo.data.errors import UserError, natural
from zoo.logs import mllog

EPILOG = """\
examples
  zoo airank submit --out submission --submitter ACME --runs 1=runs/one 8=runs/eight 32=runs/all \\
      --hardware-name "ACME X1" --hardware-type datacenter --host-storage-type SSD
  zoo airank check submission
  zoo airank summary submission
  zoo airank mllog runs/tsm_k400 --submitter ACME --out mllog.txt
  zoo airank log runs/tsm_k400/airank.log

Rules: github.com/AI-Rank/AI-Rank, docs/software/train.md; docs/airank.md explains what is checked.
Exit codes: 0 done, 1 the tree that was checked has problems, 2 something to fix on your side."""
SUBMIT_EPILOG = """\
Fields of system_information.json come from the record of the run with the most cards; the options give what a machine
cannot know, or replace it. Nothing is written if anything is missing: all of it is listed."""
MLLOG_EPILOG = f"""\
Check the file with github.com/mlcommons/logging (pip install mlperf-logging). ResNet by MLPerf's own rules, the other
models by this project's:

  python -m mlperf_logging.compliance_checker --ruleset 4.0.0 mllog.txt
  python -m mlperf_logging.compliance_checker --ruleset 4.0.0 \\
      --config {os.path.dirname(os.path.realpath(rules.__file__))}/mlperf_rules.yaml mllog.txt"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    return arguments.run_command(arguments)


def submit_command(arguments: argparse.Namespace) -> int:
    """Write the tree of a submission."""
    given = {name: getattr(arguments, name) for name in rules.FIELDS}
    plan = tree.plan(_scales(arguments.runs), given)
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
    require_new(arguments.json, "--json")
    problems = check.check(arguments.tree)
    print_report([*problems, f"{arguments.tree}: {len(problems)} problems"], problems, arguments.json)
    return int(bool(problems))


def summary_command(arguments: argparse.Namespace) -> int:
    """Print the table of trees and runs."""
    require_new(arguments.json, "--json")
    found = check.rows(arguments.paths, arguments.target)
    print_report(check.summary(found), found, arguments.json)
    return 0


def mllog_command(arguments: argparse.Namespace) -> int:
    """Print or write the MLPerf log of a run."""
    require_new(arguments.out, "--out")
    run = runs.read(arguments.run)
    if run.begin.get("speed"):
        raise UserError(f"{arguments.run} is a run of --speed, which trains to no target: MLPerf has no log of it")
    submission = mllog.Submission(arguments.submitter, arguments.division, arguments.status, arguments.platform)
    lines = mllog.lines(run.events, submission)
    text = "".join(f"{line}\n" for line in lines)
    if arguments.out:
        write_new(text, arguments.out, "--out")
    else:
        print(text, end="")
    if not any('"key": "run_stop"' in line for line in lines):
        print(f"warning: {arguments.run} is unfinished; the log has no run_stop", file=sys.stderr)
    return 0


def _scales(pairs: list[str]) -> dict[int, runs.Run]:
    scales: dict[int, runs.Run] = {}
    for pair in pairs:
        word, equals, folder = pair.partition("=")
        cards = natural(word)
        if not equals or not cards:
            raise UserError(f"--runs {pair}: expected CARDS=RUN, such as 8=runs/tsm_k400")
        if cards in scales:
            raise UserError(f"--runs {pair}: {cards} cards are given twice")
        scales[cards] = runs.read(folder)
    models = sorted({run.begin["model"] for run in scales.values()})
    if len(models) > 1:
        raise UserError(f"--runs: these are runs of {' and '.join(models)}; submit one model at a time")
    return scales


def parser() -> program.Parser:
    form = argparse.RawDescriptionHelpFormatter
    parser = program.parser(__doc__, EPILOG)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, epilog: str = "") -> Any:
        one = commands.add_parser(name, help=text, description=text, epilog=epilog, formatter_class=form)
        one.set_defaults(run_command=run)
        return one

    one = command("submit", submit_command, "write the tree of a submission", SUBMIT_EPILOG)
    one.add_argument("--out", metavar="TREE", required=True, help="new folder")
    one.add_argument(
        "--runs", metavar="CARDS=RUN", nargs="+", required=True, help="runs with 1, 8 and 32 cards; of a demo, with any"
    )
    one.add_argument("--demo", action="store_true", help="write what is incomplete too, marked as a demo")
    group = one.add_argument_group("fields of system_information.json")
    for name, example in rules.FIELDS.items():
        option, metavar = f"--{name.replace('_', '-')}", "N" if isinstance(example, int) else "TEXT"
        is_required = name == "submitter"
        group.add_argument(option, type=type(example), metavar=metavar, required=is_required, help=f"such as {example}")

    one = command("check", check_command, "check the tree of a submission from its files alone")
    one.add_argument("tree", metavar="TREE", help="folder that holds submitter/system/...")
    add_json_argument(one)

    one = command("summary", summary_command, "print the reviewers' table of trees and runs")
    one.add_argument("paths", metavar="TREE|RUN", nargs="+")
    one.add_argument("--target", type=accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    add_json_argument(one)

    one = command("mllog", mllog_command, "print the MLPerf log of a run", MLLOG_EPILOG)
    one.add_argument("run", metavar="RUN", help="folder of the run")
    one.add_argument("--out", metavar="FILE", help="write it to a new file instead")
    one.add_argument("--submitter", metavar="NAME", default="unknown", help="submission_org; default unknown")
    one.add_argument("--platform", metavar="NAME", help="submission_platform; default hosts x accelerators of the run")
    one.add_argument("--division", choices=mllog.DIVISIONS, default="open", help="default open")
    one.add_argument("--status", choices=mllog.STATUSES, default="research", help="default research")
    return parser
