"""Time a matrix of recipes, frameworks, precisions, batch sizes and processes, and compare it with another."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from zoo.bench.matrix import abilities, comparison, dimensions, records, results, rounds, runner
from zoo.bench.matrix.arguments import PAIRED_REPEATS, REPEATS, parse
from zoo.bench.matrix.cases import BASE, Case
from zoo.bench.matrix.comparison import Runs
from zoo.bench.matrix.dimensions import Dimensions
from zoo.bench.matrix.folder import Folder, write
from zoo.bench.matrix.process import Limits, Stopped, StopSignal
from zoo.bench.matrix.records import Key, SpeedRun
from zoo.bench.matrix.results import Outcome
from zoo.bench.matrix.rounds import Done, Matrix, Plan
from zoo.data.errors import UserError
from zoo.distributed.consistency import code_version
from zoo.frameworks import FRAMEWORKS

SHARE_OF_MEMORY = 0.8  # of the available memory, for trials of --find-batch without --memory-limit


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    # Hidden flags: this script also is the process above a run, and the one that answers what a framework can do.
    if argv[:1] == ["--run"]:
        return runner.run(argv[1:])
    if argv[:1] == ["--probe"]:
        abilities.probe(*argv[1:])
    arguments = parse(argv)
    try:
        if arguments.config:
            return run_matrix(arguments)
        if not arguments.against:
            raise UserError("name recipes with -c, or the folder to compare with --against; see --help")
        old = records.read_folder(Path(arguments.against), "--against")
        return report_against(old, records.read_folder(Path(arguments.out), "--out"), arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"\nstopped by signal {stopped.number}; the same command goes on", file=sys.stderr)
        return 128 + stopped.number


def run_matrix(arguments: argparse.Namespace) -> int:
    """Run what is missing of a matrix, print and write its results, and compare; return the exit code.

    Raises:
        UserError: an argument is wrong, or nothing of the matrix can be run.
        Stopped: a signal came.
    """
    shape = read_dimensions(arguments)
    against_runs = arguments.against and not dimensions.is_checkout(arguments.against)
    if against_runs:  # a mistake in it is reported before anything runs
        old = records.read_folder(Path(arguments.against), "--against")
    todo = dimensions.cases_of(shape, arguments.override)
    plan, stop = read_plan(arguments), StopSignal()
    if arguments.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            announce(todo, arguments, plan, Path(folder), stop)
        return 0
    description = dimensions.describe(shape, arguments.override, run_settings(arguments))
    target = Folder(Path(arguments.out), description)
    if arguments.retry:
        target.forget("failure")
    skipped = announce(todo, arguments, plan, target.path, stop)
    matrix = Matrix(target, arguments.override, plan, stop)
    possible = [case for case in todo if case not in skipped]
    if not possible:
        raise UserError("nothing of this matrix can be run here")
    possible = rounds.find_batches(matrix, possible)
    runnable = [case for case in possible if case.batch is not None]
    done = rounds.run_all(matrix, runnable)
    outcomes = {case: outcome(matrix, case, done) for case in possible}
    outcomes |= {case: Outcome({}, reason, is_skipped=True) for case, reason in skipped.items()}
    busy_runs = sum(bool(entry["busy"]) for entry in target.attempts if entry["kind"] == "run")
    results.save(target.path, outcomes, busy_runs)
    print("\n" + "\n".join(results.table(outcomes)))
    if busy_runs:
        print(f"the machine was busy before {busy_runs} runs: see benchmark.jsonl")
    print(f"the numbers are in {target.path / 'results.json'} and results.csv")
    if not any(done.values()):
        raise UserError("no run of this matrix has succeeded")
    if against_runs:
        return report_against(old, by_key(done), arguments)
    return report_variants(done, shape, arguments)


def read_dimensions(arguments: argparse.Namespace) -> Dimensions:
    """Return what the matrix consists of.

    Raises:
        UserError: an argument is wrong.
    """
    if arguments.variant and arguments.against:
        raise UserError("--against: with --variant, the variants are compared with each other; leave one of them out")
    frameworks = arguments.frameworks or list(FRAMEWORKS)
    for name in frameworks:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
    recipes = dimensions.read_recipes(arguments.config, arguments.override)
    for precision in arguments.precisions:
        dimensions.resolve(recipes[0], frameworks[0], precision, arguments.override)
    variants = dimensions.read_variants(arguments.variant, arguments.against)
    return Dimensions(
        variants, recipes, frameworks, arguments.precisions, arguments.batches, arguments.find_batch, arguments.worlds
    )


def run_settings(arguments: argparse.Namespace) -> dict[str, object]:
    """Return what all runs of a matrix have in common, beside its dimensions."""
    return {
        "drop": arguments.drop,
        "count": arguments.count,
        "device": arguments.device,
        "hosts": arguments.hosts,
        "launch": arguments.launch,
        "code (a digest of train.py, zoo and data)": code_version(),
    }


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Return how the cases are run."""
    options = [word for pair in arguments.override for word in ("-o", pair)]
    options += ["--device", arguments.device] if arguments.device else []
    return Plan(
        options=options,
        window=("--drop", str(arguments.drop), "--count", str(arguments.count)),
        launch_options=arguments.launch,
        hosts=arguments.hosts,
        repeats=arguments.repeats or (PAIRED_REPEATS if _is_paired(arguments) else REPEATS),
        cv=arguments.cv,
        max_repeats=arguments.max_repeats,
        busy=arguments.busy,
        limits=Limits(arguments.timeout),
        trial_memory=arguments.memory_limit or int(SHARE_OF_MEMORY * psutil.virtual_memory().available),
        turns=not arguments.no_turns,
    )


def _is_paired(arguments: argparse.Namespace) -> bool:
    """Return whether variants are compared round by round."""
    return bool(arguments.variant or (arguments.against and dimensions.is_checkout(arguments.against)))


def announce(
    todo: Sequence[Case], arguments: argparse.Namespace, plan: Plan, folder: Path, stop: StopSignal
) -> dict[Case, str]:
    """Print what the matrix is, and return why cases cannot run here.

    Args:
        todo: all cases.
        arguments: of the command line.
        plan: how the cases are run.
        folder: receives what the frameworks print.
        stop: ends it.
    """
    hosts = max(1, len(arguments.hosts))
    log = folder / "abilities.log"
    skipped = abilities.impossible(todo, arguments.override, arguments.device, hosts, log, stop)
    repeats = f"{plan.repeats} runs of each"
    repeats += f", up to {plan.max_repeats} until the median's cv is below {plan.cv:g}" if plan.cv else ""
    lines = [f"{len(todo) - len(skipped)} of {len(todo)} cases, {repeats}:"]
    lines += [f"  {case}" + (" largest batch" if case.batch is None else "") for case in todo if case not in skipped]
    print("\n".join(lines + results.skipped_lines(skipped)), flush=True)
    return skipped


def outcome(matrix: Matrix, case: Case, done: Done) -> Outcome:
    """Return what is known about a case that was possible."""
    return Outcome(done.get(case, {}), matrix.target.failure(case))


def by_key(done: Done) -> dict[Key, list[SpeedRun]]:
    """Return the runs of cases that have some."""
    return {key_of(case): list(runs.values()) for case, runs in done.items() if runs}


def key_of(case: Case) -> Key:
    """Return the key of a case without its variant."""
    assert case.batch is not None
    name, world = case.recipe.name, case.world
    return Key(name, case.framework, case.precision, case.batch, world.hosts, world.size)


def report_variants(done: Done, shape: Dimensions, arguments: argparse.Namespace) -> int:
    """Compare every variant with the base, and the base with another checkout, round by round; return the exit code."""
    code = 0
    for variant in shape.variants[1:]:
        old, new = {}, {}
        for case, runs in done.items():
            base = done[case._replace(variant=shape.variants[0])]
            common = [number for number in runs if number in base]
            if case.variant == variant and common:
                old[key_of(case)] = [base[number] for number in common]
                new[key_of(case)] = [runs[number] for number in common]
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
    """Print and write a comparison; return 1 if a case is slower, else 0.

    Raises:
        UserError: the two have no case in common, or the file cannot be written.
    """
    found = comparison.compare(old, new, arguments.margin, paired)
    if not found.rows:
        notes = "".join(f"\n  {note}" for note in found.notes)
        raise UserError(f"there is nothing to compare, the two have no case in common:{notes}")
    print("\n".join(comparison.lines(found)))
    path = Path(arguments.out) / name
    try:
        write(path, json.dumps(comparison.as_json(found), indent=1) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None
    return 1 if found.regressions else 0
