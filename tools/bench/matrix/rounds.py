"""The runs of a matrix, round by round, and the search for the largest batch."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from zoo.bench.matrix import busy, folder, process, records
from zoo.bench.matrix.cases import Case, Variant, shuffled
from zoo.bench.matrix.dimensions import config_of, for_large_batches
from zoo.bench.matrix.largest import largest
from zoo.bench.matrix.process import OUT_OF_MEMORY, Limits, StopSignal
from zoo.bench.matrix.records import SpeedRun
from zoo.bench.matrix.statistics import summarize
from zoo.bench.matrix.turns import TurnGiver
from zoo.data.errors import UserError

TRIAL_WINDOW = ("--drop", "1", "--count", "3")  # updates of a trial: the first one has allocated everything
TRIAL = "trial"  # in place of the number of a run

Done = dict[Case, dict[int, SpeedRun]]  # complete runs by number


class Start(NamedTuple):
    """When something began: Unix seconds for the record, and a clock that nobody sets for its duration."""

    time: float
    monotonic: float

    @classmethod
    def now(cls) -> "Start":
        """Return this moment."""
        return cls(time.time(), time.monotonic())


class Plan(NamedTuple):
    """How the cases of a matrix are run.

    Attributes:
        options: of train.py, for all runs alike.
        window: its options that say how many updates count.
        launch_options: of tools/launch.py, by number of hosts.
        repeats: runs of each case.
        cv: coefficient of variation of the median below which a case needs no further run; None for `repeats` runs.
        max_repeats: runs of each case at most, with `cv`.
        busy: what to do on a busy machine: warn, wait or refuse.
        limits: of a run.
        trial_memory: bytes that the processes of a trial may have together.
        turns: whether the variants of a case run at the same time, taking turns.
    """

    options: Sequence[str]
    window: Sequence[str]
    launch_options: Sequence[str]
    hosts: Sequence[str]
    repeats: int
    cv: float | None
    max_repeats: int
    busy: str
    limits: Limits
    trial_memory: int
    turns: bool = True


class Matrix(NamedTuple):
    """A matrix that is being run.

    Attributes:
        target: its folder.
        overrides: changes of the recipes.
        plan: how the cases are run.
        stop: ends it.
    """

    target: folder.Folder
    overrides: Sequence[str]
    plan: Plan
    stop: StopSignal


def find_batches(matrix: Matrix, cases: Sequence[Case]) -> list[Case]:
    """Return the cases with the largest batch that fits; those in which none fits keep None, with a failure.

    The variants of a case get the batch of the first one. Trials are recorded, and not repeated.
    """
    found: dict[Case, int] = {}
    for case in cases:
        group = case._replace(variant=Variant(""))
        if case.batch is None and group not in found:
            found[group] = _largest(matrix, case)
    result = []
    for case in cases:
        batch = case.batch or found[case._replace(variant=Variant(""))]
        result.append(case._replace(batch=batch or None))
        if not batch and not matrix.target.failure(case):
            matrix.target.add("failure", case, reason=f"{OUT_OF_MEMORY} even with a batch of 1")
    return list({str(case): case for case in reversed(result)}.values())[::-1]  # the largest may be one of --batches


def run_all(matrix: Matrix, cases: Sequence[Case]) -> Done:
    """Make the runs that are missing; a case that fails is named, recorded, and not repeated.

    Raises:
        UserError: the machine is busy and is not to be, or a folder cannot be written to.
        Stopped: a signal came.
    """
    plan = matrix.plan
    done: Done = {case: {} for case in cases}
    for number in range(1, max(plan.repeats, plan.max_repeats if plan.cv else 0) + 1):
        for group in shuffled(_due(matrix, cases, done, number), number):
            found = {case: records.read(_stem(matrix, case, number)) for case in group}
            sound = [case for case in group if not matrix.target.failure(case)]
            missing = [case for case in sound if not found[case]]
            if missing and _take_turns(matrix, sound):
                found |= _run_in_turns(matrix, sound, number)
            else:
                found |= {case: _run(matrix, case, number) for case in missing}
            for case, run in found.items():
                if run:
                    done[case][number] = run
    return done


def _due(matrix: Matrix, cases: Sequence[Case], done: Done, number: int) -> list[Case]:
    """Return the cases that need the run of this number; a case needs it if one of its variants does."""
    plan = matrix.plan
    if number <= plan.repeats:
        return list(cases)
    assert plan.cv is not None
    groups = {
        case._replace(variant=Variant(""))
        for case in cases
        if not matrix.target.failure(case) and not _is_precise(done[case], plan.cv)
    }
    return [case for case in cases if case._replace(variant=Variant("")) in groups]


def _is_precise(runs: dict[int, SpeedRun], cv: float) -> bool:
    median_cv = summarize([run.samples_per_s for run in runs.values()]).median_cv if runs else None
    return median_cv is not None and median_cv <= cv


def _take_turns(matrix: Matrix, group: Sequence[Case]) -> bool:
    """Return whether the variants of a case run at the same time, taking turns.

    On several hosts the first rank may be elsewhere, and the largest batch leaves no memory for another run.
    """
    return matrix.plan.turns and len(group) > 1 and group[0].world.hosts == 1 and not group[0].is_largest


def _run_in_turns(matrix: Matrix, group: Sequence[Case], number: int) -> dict[Case, SpeedRun | None]:
    """Make the runs of all variants of a case at the same time, in turns; anew, if some of them are there already."""
    load, start = busy.check(matrix.plan.busy, matrix.stop), Start.now()
    print(f"round {number}: {group[0]._replace(variant=Variant(''))}, {len(group)} variants in turns ... ", flush=True)
    window, limits = matrix.plan.window, matrix.plan.limits
    with TurnGiver() as giver, ThreadPoolExecutor(len(group)) as pool:
        words = [*window, "--turns", giver.path]
        futures = [pool.submit(_start, matrix, case, _stem(matrix, case, number), words, limits) for case in group]
        giver.serve(lambda: sum(not future.done() for future in futures))
    failures = [future.result() for future in futures]
    runs: dict[Case, SpeedRun | None] = {}
    for case, failure in zip(group, failures, strict=True):
        print(f"  {case.variant.name}: ", end="")
        runs[case] = _record(matrix, case, number, failure, load, start)
    return runs


def _run(matrix: Matrix, case: Case, number: int) -> SpeedRun | None:
    """Make a run, anew if it was interrupted; None if it failed."""
    load, start = busy.check(matrix.plan.busy, matrix.stop), Start.now()
    print(f"round {number}: {case} ... ", end="", flush=True)
    failure = _start(matrix, case, _stem(matrix, case, number), matrix.plan.window, matrix.plan.limits)
    return _record(matrix, case, number, failure, load, start)


def _record(
    matrix: Matrix, case: Case, number: int, failure: str | None, load: busy.Load, start: Start
) -> SpeedRun | None:
    """Read a run that has ended, and record it; None if it failed. start: when it began."""
    run = None if failure else records.read(_stem(matrix, case, number))
    if run is None:
        failure = failure or "train.py wrote no speed event"
        print(f"failed: {failure}", flush=True)
        matrix.target.add("failure", case, run=number, reason=failure)
        return None
    print(f"{run.samples_per_s:.4g} samples/s", flush=True)
    busy_now = {"busy": load.is_busy, "others_cpu": load.cpu, "others": [*load.processes, *load.gpus]}
    matrix.target.add("run", case, run=number, start=start.time, seconds=time.monotonic() - start.monotonic, **busy_now)
    return run


def _stem(matrix: Matrix, case: Case, number: int) -> Path:
    return case.stem(matrix.target.path, number)


def _start(matrix: Matrix, case: Case, stem: Path, window: Sequence[str], limits: Limits) -> str | None:
    folder.clear(stem)
    plan = matrix.plan
    launch = [*plan.launch_options]
    if case.world.hosts > 1:
        launch += ["--hosts", ",".join(plan.hosts[: case.world.hosts])]
    changes = for_large_batches(case, matrix.overrides) if case.is_largest else []
    options = [*plan.options, *(word for change in changes for word in ("-o", change)), "--speed", *window]
    words = process.command(case, stem, options, launch)
    return process.run(words, Path(f"{stem}.log"), case.variant.checkout, limits, matrix.stop)


def _largest(matrix: Matrix, case: Case) -> int:
    """Return the largest batch of a case; 0 if none fits or a trial fails for another reason, which is recorded."""
    known = {entry["batch"]: entry["fits"] for entry in matrix.target.of(TRIAL, case)}
    limits = matrix.plan.limits._replace(memory=matrix.plan.trial_memory)

    def fits(batch: int) -> bool:
        if batch in known:
            return known[batch]
        trial = case._replace(batch=batch)
        stem = trial.stem(matrix.target.path, TRIAL)
        print(f"trial: {trial} ... ", end="", flush=True)
        failure = _start(matrix, trial, stem, TRIAL_WINDOW, limits)
        folder.clear(stem)  # it is no run of the matrix
        print(failure or "fits", flush=True)
        if failure and failure != OUT_OF_MEMORY:
            raise UserError(failure)
        matrix.target.add(TRIAL, case, batch=batch, fits=not failure, memory_limit=limits.memory)
        return not failure

    if matrix.target.failure(case):
        return 0
    try:
        return largest(fits, config_of(case, matrix.overrides).train.batch)
    except UserError as error:
        matrix.target.add("failure", case, reason=f"the search for the largest batch failed: {error}")
        return 0
