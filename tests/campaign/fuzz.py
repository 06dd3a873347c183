"""Mutated files for every reader of files from strangers: nothing is executed, and every refusal names the file.

A trial is COUNT inputs for one reader, read in a child process (tests/campaign/fuzzing/worker.py). Harm is code that
runs, an exception that is no error of the file, more than LIMIT seconds, or more memory than the greater of 256 MiB and
20 times the size of the input.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.campaign import Trial
from tests.campaign.fuzzing.readers import READERS
from tests.campaign.fuzzing.worker import PROGRESS
from tests.helpers.paths import ROOT

KINDS = tuple(READERS)
COUNT = 4000  # inputs per trial
LIMIT = 10.0  # seconds of CPU time for an input
WAITING_LIMIT = 60.0  # seconds for an input that takes no CPU time, which other processes may take from it
START_LIMIT = 180.0  # seconds until the next input is made, after imports
POLL = 0.1  # seconds
WARM_UP = 150
MODULE = "tests.campaign.fuzzing.readers"


def trial(number: int, folder: Path, count: int = COUNT) -> Trial:
    """Attack one reader with `count` inputs. folder: for the results."""
    (result,) = attack([KINDS[number % len(KINDS)]], number // len(KINDS), folder, count)
    return result


def attack(
    kinds: Sequence[str], seed: int, folder: Path, count: int, module: str = MODULE, warm_up: int = WARM_UP
) -> list[Trial]:
    """Attack readers one after the other; a child process that an input ends is replaced after it.

    Args:
        kinds: keys of READERS in a module.
        seed: decides the inputs.
        folder: for the results.
        count: of inputs for each reader.
        module: with READERS.
        warm_up: inputs that are read before code is watched: libraries import modules when they are first used.
    """
    results, first, total = folder / "results.jsonl", 0, count * len(kinds)
    results.touch()
    while first < total:
        task = {"module": module, "kinds": kinds, "seed": seed, "count": count, "first": first, "warm_up": warm_up}
        ended, reason = _run({**task, "results": str(results)}, folder / "stderr")
        if reason is None:
            break
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"position": ended, "failure": reason}) + "\n")
        first = ended + 1
    trials = [Trial(kind, count, [], {}) for kind in kinds]
    for line in results.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        index, number = divmod(entry["position"], count)
        found = trials[index]
        if "failure" in entry:
            found.failures.append(f"{found.kind}: input {number} of seed {seed}: {entry['failure']}")
        trials[index] = found._replace(figures=_largest(found.figures, entry.get("figures", {})))
    return trials


def _largest(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: max(first.get(name, 0.0), second.get(name, 0.0)) for name in {**first, **second}}


def _run(task: Mapping[str, Any], stderr: Path) -> tuple[int, str | None]:
    """Run a child process.

    Returns:
        The position of the last input that it has begun, and why this input ended it; None if it has read all.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    words = [sys.executable, "-m", "tests.campaign.fuzzing.worker", json.dumps(task)]
    progress = Path(f"{task['results']}.progress")
    with stderr.open("wb") as file:
        child = subprocess.Popen(words, cwd=ROOT, env=environment, stderr=file)
        try:
            ended, reason = _watch(child, progress)
        finally:
            child.kill()
            child.wait()
            progress.unlink(missing_ok=True)
    if reason is not None and ended < task["first"]:
        raise RuntimeError(f"{reason}: {stderr.read_text(errors='replace')[-2000:]}")
    return ended, reason


def _watch(child: subprocess.Popen, progress: Path) -> tuple[int, str | None]:
    process, current, cpu, since = psutil.Process(child.pid), -1, 0.0, time.monotonic()
    while (code := child.poll()) is None:
        time.sleep(POLL)
        position = _position(progress)
        used, now = _cpu_seconds(process), time.monotonic()
        if position != current:
            current, cpu, since = position, used, now
        elif position >= 0 and (used - cpu > LIMIT or now - since > WAITING_LIMIT):
            return position, f"slow: {used - cpu:.1f} s of CPU time in {now - since:.1f} s"
        elif now - since > START_LIMIT:
            return -1, "it does not start"
    return _position(progress), f"crash: exit code {code}" if code else None


def _position(progress: Path) -> int:
    """Return the position of the input that is being read, -1 while none is."""
    content = progress.read_bytes() if progress.exists() else b""
    return PROGRESS.unpack(content)[0] if len(content) == PROGRESS.size else -1


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system
