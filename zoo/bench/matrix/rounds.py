"""The runs of a matrix, round by round, and the search for the largest batch."""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from zoo.bench.matrix import process
from zoo.bench.matrix.cases import Case, Folder, clear, config_of, for_large_batches, shuffled
from zoo.bench.matrix.process import OUT_OF_MEMORY, Load, TurnGiver
from zoo.bench.matrix.results import speeds_of
from zoo.bench.report import runs
from zoo.bench.report.runs import COMPLETE, Run
from zoo.bench.statistics import summarize
from zoo.data.errors import UserError

TRIAL_WINDOW = ("--drop", "1", "--count", "3")  # updates of a trial: the first one has allocated everything
TRIAL = "trial"  # in place of the number of a run
SHARE_OF_MEMORY = 0.8  # of the host's available memory, that a trial may take
MAX_REPEATS = 20  # with --cv
MAX_BATCH = 1 << 16  # samples per process: a batch beyond it is not tried
RESOLUTION = 16  # the largest batch is exact to one part in this many

Done = dict[Case, dict[int, Run]]  # complete runs by number


class Matrix(NamedTuple):
    """A matrix that is being run: its folder, and the options of the command line."""

    target: Folder
    options: argparse.Namespace


def find_batches(matrix: Matrix, cases: Sequence[Case]) -> list[Case]:
    """Return the cases with the largest batch that fits; those in which none fits keep None, with a failure.

    The variants of a case get the batch of the first one. Trials are recorded, and not repeated.
    """
    found: dict[Case, int] = {}
    result: dict[str, Case] = {}
    for case in cases:
        if case.batch is None and case.group not in found:
            found[case.group] = _largest(matrix, case)
        batch = case.batch or found[case.group]
        with_batch = case._replace(batch=batch or None)
        result.setdefault(str(with_batch), with_batch)  # the largest may be one of --batches
        if not batch and not matrix.target.failure(case):
            matrix.target.add("failure", case, reason=f"{OUT_OF_MEMORY} even with a batch of 1")
    return list(result.values())


def refused(options: argparse.Namespace, cases: Sequence[Case]) -> dict[Case, str]:
    """Return why cases would not start here: each one starts as its runs do, and stops before its first update."""
    found = {}
    window = ["--drop", str(options.drop), "--count", str(options.count), "--check-only"]
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            print(f"check: {case} ... ", end="", flush=True)
            sized = case._replace(batch=case.batch or config_of(case, options.override).train.batch)
            reason = _start(options, sized, sized.stem(Path(folder), "check"), window) or ""
            reason = reason.partition(" (exit code")[0]  # and the log, which is not kept
            print(reason or "starts", flush=True)
            if reason:
                found[case] = reason
    return found


def run_all(matrix: Matrix, cases: Sequence[Case]) -> Done:
    """Make the runs that are missing; a case that fails is named, recorded, and not repeated."""
    options = matrix.options
    done: Done = {case: {} for case in cases}
    for number in range(1, max(options.repeats, MAX_REPEATS if options.cv else 0) + 1):
        for group in shuffled(_due(matrix, cases, done, number), number):
            found = {case: _read(matrix, case, number) for case in group}
            sound = [case for case in group if not matrix.target.failure(case)]
            missing = [case for case in sound if not found[case]]
            # On several hosts the first rank may be elsewhere; the largest batch leaves no memory for another run.
            alone = len(sound) < 2 or sound[0].world.hosts > 1 or sound[0].is_largest
            if alone:
                for case in missing:
                    found |= _run(matrix, [case], number)
            elif missing:
                found |= _run(matrix, sound, number)  # anew, those that are there already
            for case, run in found.items():
                if run:
                    done[case][number] = run
    return done


def largest(fits: Callable[[int], bool], start: int) -> int:
    """Return the largest batch that fits, to one part in RESOLUTION, by doubling and bisecting; 0 if none does.

    Args:
        fits: whether a batch fits; one that is larger than a batch that does not, does not either.
    """
    low, high = 0, max(1, start)
    while high <= MAX_BATCH and fits(high):
        low, high = high, 2 * high
    if high > MAX_BATCH:
        return low
    while not low and high > 1:  # the first one did not fit
        half = high // 2
        low, high = (half, high) if fits(half) else (0, half)
    while low and high - low > max(1, low // RESOLUTION):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _due(matrix: Matrix, cases: Sequence[Case], done: Done, number: int) -> list[Case]:
    """Return the cases that need the run of this number; a case needs it if one of its variants does."""
    if number <= matrix.options.repeats:
        return list(cases)
    groups = set()
    for case in cases:
        found = list(done[case].values())
        median_cv = summarize(speeds_of(found)).median_cv if found else None
        if not matrix.target.failure(case) and (median_cv is None or median_cv > matrix.options.cv):
            groups.add(case.group)
    return [case for case in cases if case.group in groups]


def _run(matrix: Matrix, group: Sequence[Case], number: int) -> dict[Case, Run | None]:
    """Make the run of a case, or those of its variants at the same time, in turns; None if it failed."""
    options = matrix.options
    load, start = process.check_load(options.busy), time.monotonic()
    in_turns = len(group) > 1
    title = f"{group[0].group}, {len(group)} variants in turns ... \n" if in_turns else f"{group[0]} ... "
    print(f"round {number}: {title}", end="", flush=True)
    window = ["--drop", str(options.drop), "--count", str(options.count)]
    with TurnGiver() as giver, ThreadPoolExecutor(len(group)) as pool:
        words = [*window, "--turns", giver.path] if in_turns else window
        futures = [pool.submit(_start, options, case, case.stem(matrix.target.path, number), words) for case in group]
        if in_turns:
            giver.serve(lambda: sum(not future.done() for future in futures))
    found: dict[Case, Run | None] = {}
    for case, future in zip(group, futures):
        failure = future.result()
        print(f"  {case.variant.name}: " if in_turns else "", end="")
        found[case] = _record(matrix, case, number, failure, load, time.monotonic() - start)
    return found


def _record(matrix: Matrix, case: Case, number: int, failure: str | None, load: Load, seconds: float) -> Run | None:
    """Read a run that has ended, and record it with the load before it and its seconds; None if it failed."""
    run = None if failure else _read(matrix, case, number)
    if run is None:
        failure = failure or "train.py wrote no speed event"
        print(f"failed: {failure}", flush=True)
        matrix.target.add("failure", case, run=number, reason=failure)
        return None
    print(f"{run.values.samples_per_s:.4g} samples/s", flush=True)
    others = {"busy": load.is_busy, "others_cpu": load.cpu, "others": load.gpus}
    others["folder"] = os.path.relpath(case.stem(matrix.target.path, number), matrix.target.path)
    matrix.target.add("run", case, run=number, end=time.time(), seconds=seconds, **others)
    return run


def _read(matrix: Matrix, case: Case, number: int) -> Run | None:
    """Read a speed run; None if it has not reached its end."""
    run = runs.read(str(case.stem(matrix.target.path, number)))
    return run if run.state == COMPLETE and run.values.step_ms else None


def _start(
    options: argparse.Namespace, case: Case, stem: Path, window: Sequence[str], memory: int | None = None
) -> str | None:
    """Run a case; return why it failed. memory: bytes that its processes may have together."""
    clear(stem)
    launch = [*options.launch]
    if case.world.hosts > 1:
        launch += ["--hosts", ",".join(options.hosts[: case.world.hosts])]
    changes = [*options.override, *(for_large_batches(case, options.override) if case.is_largest else ())]
    words = [word for change in changes for word in ("-o", change)]
    words += ["--device", options.device] if options.device else []
    words = process.command(case, stem, [*words, "--speed", *window], launch)
    return process.run(words, Path(f"{stem}.log"), case.variant.checkout, options.timeout, memory)


def _largest(matrix: Matrix, case: Case) -> int:
    """Return the largest batch of a case; 0 if none fits or a trial fails for another reason, which is recorded."""
    known = {entry["batch"]: entry["fits"] for entry in matrix.target.of(TRIAL, case)}
    memory = int(SHARE_OF_MEMORY * psutil.virtual_memory().available)

    def fits(batch: int) -> bool:
        if batch in known:
            return known[batch]
        trial = case._replace(batch=batch)
        stem = trial.stem(matrix.target.path, TRIAL)
        print(f"trial: {trial} ... ", end="", flush=True)
        failure = _start(matrix.options, trial, stem, TRIAL_WINDOW, memory)
        clear(stem)  # it is no run of the matrix
        print(failure or "fits", flush=True)
        if failure and failure != OUT_OF_MEMORY:
            raise UserError(failure)
        matrix.target.add(TRIAL, case, batch=batch, fits=not failure)
        return not failure

    if matrix.target.failure(case):
        return 0
    try:
        return largest(fits, config_of(case, matrix.options.override).train.batch)
    except UserError as error:
        matrix.target.add("failure", case, reason=f"the search for the largest batch failed: {error}")
        return 0
