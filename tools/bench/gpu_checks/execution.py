"""Running the steps that have no result yet, one after the other, within a time budget."""

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zoo.bench.gpu_checks.results import DONE, FAILED, LOGS, RUNS, SKIPPED, Result, Results
from zoo.bench.gpu_checks.step import Step
from zoo.bench.matrix import process
from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.process import Limits, StopSignal
from zoo.distributed.consistency import code_version

TAIL_LINES = 15  # of the output of a step that failed
MIN_SECONDS = 20.0  # that must be left of the budget to start a step


def run_all(
    steps: Sequence[Step], results: Results, budget: float, stop: StopSignal, print_line: Callable[[str], None]
) -> list[Step]:
    """Run what has no result.

    Args:
        steps: in order.
        results: receives the results.
        budget: seconds after which nothing runs any more.
        stop: ends the program.
        print_line: receives a line per step.

    Returns:
        The steps that are left, because the budget has ended.

    Raises:
        Stopped: a signal came.
    """
    deadline = time.monotonic() + budget
    for number, step in enumerate(steps):
        if (result := results.get(step)) is None or result["state"] == SKIPPED:
            left = deadline - time.monotonic()
            if step.missing is None and left < MIN_SECONDS:
                return [other for other in steps[number:] if results.get(other) is None]
            result = run(step, results, left, stop)
            if result is None:
                return [other for other in steps[number:] if results.get(other) is None]
            results.put(step, result)
            print_line(f"{number + 1:3}/{len(steps)} {step.name:<40} {describe(result)}")
    return []


def run(step: Step, results: Results, left: float, stop: StopSignal) -> Result | None:
    """Run a step; return its result, None if the budget ended it.

    Args:
        step: what to run.
        results: of the check, for its folder.
        left: seconds of the budget.
        stop: ends it.
    """
    if step.missing:
        return {"state": SKIPPED, "reason": step.missing, "facts": dict(step.facts)}
    folder, log = results.path / RUNS / step.name, results.path / LOGS / f"{step.name}.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.monotonic()
    seconds = min(step.seconds, left)
    reason = process.run([process.sys.executable, *step.words], log, CHECKOUT, Limits(seconds), stop)
    elapsed = time.monotonic() - start
    if reason and seconds < step.seconds and elapsed >= seconds:
        return None
    common: dict[str, Any] = {"seconds": round(elapsed, 1), "at": time.time(), "code": code_version()}
    common |= {"command": list(step.words), "facts": dict(step.facts)}
    is_result = reason is None or any(f"(exit code {code}, " in reason for code in step.accepts)
    if is_result:
        try:
            return {"state": DONE, **common, "values": dict(step.read(folder))}
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = reason or f"no result: {error}"
    return {"state": FAILED, **common, "reason": reason, "tail": tail(log)}


def tail(log: Path) -> list[str]:
    """Return the last lines of a log."""
    with open(log, encoding="utf-8", errors="replace") as file:
        return [line.rstrip() for line in deque((line for line in file if line.strip()), TAIL_LINES)]


def describe(result: Result) -> str:
    """Return a result in a line."""
    seconds = f"{result['seconds']:6.1f} s  " if "seconds" in result else ""
    if result["state"] != DONE:
        return f"{seconds}{result['state']}: {result['reason']}"
    numbers = {key: value for key, value in result["values"].items() if isinstance(value, int | float | str)}
    return seconds + json.dumps(numbers)[:150]
