"""Time a matrix of recipes, frameworks, precisions, batch sizes and processes, and compare it with another."""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import psutil

from zoo import program
from zoo.bench.matrix import results, rounds
from zoo.bench.matrix.cases import (
    BASE,
    Case,
    Folder,
    Variant,
    describe,
    expand,
    impossible,
    is_checkout,
    read_recipes,
    read_variants,
    require_same,
    resolve,
    title,
)
from zoo.bench.matrix.results import Outcome, Runs
from zoo.bench.matrix.rounds import MAX_REPEATS, Done, Matrix
from zoo.bench.options import Cluster, cluster, several
from zoo.commands.options import add_override_argument
from zoo.data import durable
from zoo.data.errors import UserError
from zoo.distributed.group import code_version
from zoo.frameworks import FRAMEWORKS
from zoo.program import count, fraction, positive

EPILOG = """\
Each run is one of `zoo train --speed` in processes of its own. Round after round, all cases are run once, in an order
that is shuffled and the same for everybody. The same command continues a matrix that was interrupted in whatever way.
What cannot run here is named and left out. docs/benchmarking.md describes the results.

--against says of every case whether it is slower than there by --margin, is not, or cannot be told without more runs.
Runs of another time cannot tell the machine's state from the code's. So compare two versions of the code with
--against CHECKOUT, and two settings with --variant: both then run at the same time and take turns, ten updates each.

examples
  %(prog)s -c tsm_demo -c resnet50_demo --precisions fp32,amp \\
      --batches 8,16 --worlds 1x1,1x2 -n 3 --drop 10 --count 10 --out results/demo
  %(prog)s -c resnet50_imagenet --precisions amp --find-batch --out results/largest
  %(prog)s -c tsm_demo --variant "last:-o train.channels_last=true" --out results/layout
  %(prog)s -c tsm_demo --against ../other-checkout --out results/change
  %(prog)s --out results/new --against results/old             compare, run nothing

Exit codes: 0 done, 1 a case is slower, 2 an error to fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM."""
REPEATS, PAIRED_REPEATS = 5, 12  # a rank test needs 4, and 6 pairs; processes of the same code differ by percents


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    if arguments.config:
        return run_matrix(arguments)
    if not arguments.against:
        raise UserError("name recipes with -c, or the folder to compare with --against; see --help")
    old = results.read_folder(Path(arguments.against), "--against")
    return report_against(old, results.read_folder(Path(arguments.out), "--out"), arguments)


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG, allow_abbrev=False)
    add = parser.add_argument
    names, counts = several(str), several(count)
    add("-c", "--config", metavar="FILE", action="append", default=[], help="recipe; repeatable")
    add_override_argument(parser, "change one key of all recipes, such as -o data.workers=4; repeatable")
    add("--out", metavar="DIR", required=True, help="folder of the matrix")
    add("--frameworks", type=names, default=list(FRAMEWORKS), metavar="A,B", help="default: all of them")
    add("--precisions", type=names, default=["fp32"], metavar="A,B", help="fp32, amp, fp16 ...; default fp32")
    add("--batches", type=counts, default=[], metavar="N,N", help="samples per process; default: those of the recipes")
    add("--find-batch", action="store_true", help="find the largest batch that fits, and time it")
    add("--worlds", type=several(cluster), default=[Cluster(1, 1)], metavar="HOSTSxPROCESSES,...", help="default 1x1")
    add("--device", metavar="NAME", help="as for zoo train; default auto")
    add("--hosts", type=names, default=[], metavar="A,B", help="for zoo launch, if a world has several hosts")
    add("--launch", type=shlex.split, default=[], metavar="OPTIONS", help="further options of zoo launch, quoted")
    add("--drop", type=count, default=20, metavar="N", help="updates before the clock starts; default 20")
    add("--count", type=count, default=100, metavar="N", help="updates that are timed; default 100")
    number = f"runs of each case; default {REPEATS}, {PAIRED_REPEATS} with variants"
    add("-n", "--repeats", type=count, metavar="N", help=number)
    add("--cv", type=fraction, metavar="X", help="up to 20 runs until the median's coefficient of variation is below X")
    add(
        "--variant",
        action="append",
        default=[],
        metavar="NAME:OPTIONS",
        help="run everything also with these options of zoo train, or with NAME=FOLDER by another checkout; repeatable",
    )
    add("--busy", choices=("warn", "wait", "refuse"), default="warn", help="if others use the machine; default warn")
    add("--timeout", type=positive, default=3600.0, metavar="SECONDS", help="of a run; default 3600")
    add("--retry", action="store_true", help="run cases again that have failed")
    add(
        "--against",
        metavar="DIR",
        help="compare with the speed runs below this folder or, if it is a checkout, with this code, run in turns",
    )
    add("--margin", type=fraction, default=0.03, metavar="X", help="slowdown that matters; default 0.03")
    add("--dry-run", action="store_true", help="start each case up to its first update, name what cannot run, and stop")
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    arguments = parser().parse_args(argv)
    is_paired = arguments.variant or (arguments.against and is_checkout(arguments.against))
    arguments.repeats = arguments.repeats or (PAIRED_REPEATS if is_paired else REPEATS)
    return arguments


def stop(number: int, _frame: object) -> None:
    """End the runs and the program at a signal: what was recorded is on the disk."""
    print(f"\nstopped by signal {number}; the same command goes on", file=sys.stderr, flush=True)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    sys.exit(128 + number)


def run_matrix(arguments: argparse.Namespace) -> int:
    """Run what is missing of a matrix, print and write its results, and compare; return the exit code."""
    if arguments.variant and arguments.against:
        raise UserError("--against: with --variant, the variants are compared with each other; leave one of them out")
    for name in arguments.frameworks:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
    variants, old = read_variants(arguments.variant, arguments.against), None
    if arguments.against and not is_checkout(arguments.against):  # a mistake in it is reported before anything runs
        old = results.read_folder(Path(arguments.against), "--against")
    recipes = read_recipes(arguments.config, arguments.override)
    for precision in arguments.precisions:
        resolve(recipes[0], arguments.frameworks[0], precision, arguments.override)
    cases = expand(arguments, recipes, variants)
    skipped = impossible(cases, max(1, len(arguments.hosts)))
    if arguments.dry_run:
        skipped |= rounds.refused(arguments, [case for case in cases if case not in skipped])
    announce(cases, skipped, arguments)
    description = describe(arguments, recipes, variants, code_version())
    if arguments.dry_run:
        require_same(Path(arguments.out), description)
        return 0 if len(skipped) < len(cases) else 2
    with closing(Folder(Path(arguments.out), description)) as target:
        done = measure(target, arguments, cases, skipped)
    if old is not None:
        new = results.by_title(run for of_case in done.values() for run in of_case.values())
        return report_against(old, new, arguments)
    return report_variants(done, variants, arguments)


def measure(target: Folder, arguments: argparse.Namespace, cases: Sequence[Case], skipped: Mapping[Case, str]) -> Done:
    """Run what is missing; print and write the results. Raises UserError if no run has succeeded."""
    if arguments.retry:
        target.forget("failure")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    matrix = Matrix(target, arguments)
    possible = [case for case in cases if case not in skipped]
    if not possible:
        raise UserError("nothing of this matrix can be run here")
    possible = rounds.find_batches(matrix, possible)
    done = rounds.run_all(matrix, [case for case in possible if case.batch is not None])
    found = {case: Outcome(done.get(case, {}), target.failure(case)) for case in possible}
    found |= {case: Outcome({}, reason, is_skipped=True) for case, reason in skipped.items()}
    busy_runs = sum(bool(entry["busy"]) for entry in target.attempts if entry["kind"] == "run")
    results.save(target.path, found, busy_runs)
    print("\n" + "\n".join(results.outcome_lines(found)))
    if busy_runs:
        print(f"the machine was busy before {busy_runs} runs: see benchmark.jsonl")
    print(f"the numbers are in {target.path / 'results.json'} and results.csv")
    if not any(done.values()):
        raise UserError("no run of this matrix has succeeded")
    return done


def announce(cases: Sequence[Case], skipped: Mapping[Case, str], arguments: argparse.Namespace) -> None:
    text = f"{len(cases) - len(skipped)} of {len(cases)} cases, {arguments.repeats} runs of each"
    if arguments.cv:
        text += f", up to {MAX_REPEATS} until the median's cv is below {arguments.cv:g}"
    lines = [f"{text}:"]
    lines += [f"  {case}" + (" largest batch" if case.batch is None else "") for case in cases if case not in skipped]
    print("\n".join(lines + results.skipped_lines(skipped)), flush=True)


def report_variants(done: Done, variants: Sequence[Variant], arguments: argparse.Namespace) -> int:
    """Compare every variant with the base, and the base with another checkout, round by round; return the exit code."""
    code = 0
    for variant in variants[1:]:
        old, new = {}, {}
        for case, runs in done.items():
            base = done[case._replace(variant=variants[0])]
            common = [number for number in runs if number in base]
            if case.variant == variant and common:
                old[title(case)] = [base[number] for number in common]
                new[title(case)] = [runs[number] for number in common]
        if arguments.against:
            print(f"\nthis checkout against {variant.checkout}, round by round:")
            code = max(code, report(new, old, arguments, "against.json", paired=True))
        else:
            print(f"\n{variant.name} against {BASE}, round by round:")
            code = max(code, report(old, new, arguments, f"{variant.name}-against-{BASE}.json", paired=True))
    return code


def report_against(old: Runs, new: Runs, arguments: argparse.Namespace) -> int:
    """Compare with other runs; return the exit code."""
    print(f"\n{arguments.out} against {arguments.against}:")
    return report(old, new, arguments, "against.json", paired=False)


def report(old: Runs, new: Runs, arguments: argparse.Namespace, name: str, paired: bool) -> int:
    """Print and write a comparison; return 1 if a case is slower, else 0."""
    found = results.compare(old, new, arguments.margin, paired)
    if not found["cases"]:
        notes = "".join(f"\n  {note}" for note in found["notes"])
        raise UserError(f"there is nothing to compare, the two have no case in common:{notes}")
    print("\n".join(results.comparison_lines(found)))
    path = Path(arguments.out) / name
    try:
        durable.write(str(path), (json.dumps(found, indent=1) + "\n").encode())
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None
    return int(any(row["verdict"] == "slower" for row in found["cases"]))
