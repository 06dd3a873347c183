"""Mutated files for every reader of files from strangers: nothing is executed, and every refusal names the file.

A trial is COUNT inputs for one reader, read in a child process (tests/campaign/fuzzing/worker.py). Harm is code that
runs, an exception that is no error of the file, more than LIMIT seconds, or more memory than the greater of 256 MiB and
20 times the size of the input.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.campaign import Trial
from tests.campaign.fuzzing.readers import READERS
from tests.campaign.fuzzing.worker import PROGRESS
from tests.helpers.paths import ROOT

KINDS = tuple(READERS)
COUNT = 4000  # inputs per trial
LIMIT = 10.0  # seconds of CPU time for an input
WAITING_LIMIT = 180  # seconds for an input that takes no CPU time, which other processes may take from it
WARM_UP = 150
TABLE = "tests.campaign.fuzzing.readers:READERS"


def trial(number: int, folder: Path, count: int = COUNT) -> Trial:
    """Attack one reader with `count` inputs. folder: for the results."""
    (result,) = attack([KINDS[number % len(KINDS)]], number // len(KINDS), folder, count)
    return result


def attack(
    kinds: Sequence[str], seed: int, folder: Path, count: int, readers: str = TABLE, warm_up: int = WARM_UP
) -> list[Trial]:
    """Attack readers one after the other; a child process that an input ends is replaced after it.

    Args:
        kinds: keys of the readers.
        seed: decides the inputs.
        folder: for the results.
        count: of inputs for each reader.
        readers: module and name of a table of readers.
        warm_up: inputs that are read before code is watched: libraries import modules when they are first used.
    """
    results, first, total = folder / "results.jsonl", 0, count * len(kinds)
    results.touch()
    while first < total:
        task = {
            "readers": readers,
            "kinds": kinds,
            "seed": seed,
            "count": count,
            "first": first,
            "warm_up": warm_up,
            "limits": [LIMIT, WAITING_LIMIT],
        }
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
    with stderr.open("wb") as file:
        code = subprocess.run(words, cwd=ROOT, env=environment, stderr=file, check=False).returncode
    progress = Path(f"{task['results']}.progress")
    content = progress.read_bytes() if progress.exists() else b""
    progress.unlink(missing_ok=True)
    ended = PROGRESS.unpack(content)[0] if len(content) == PROGRESS.size else -1
    if code and ended < task["first"]:
        raise RuntimeError(f"exit code {code}: {stderr.read_text(errors='replace')[-2000:]}")
    slow = {-signal.SIGPROF: f"slow: {LIMIT} s of CPU time", -signal.SIGALRM: f"slow: {WAITING_LIMIT} s"}
    return ended, slow.get(code, f"crash: exit code {code}") if code else None
