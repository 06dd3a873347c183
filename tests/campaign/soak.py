"""Long reading: memory stays flat, and nothing is left behind, not even after many starts and stops.

python -m tests.campaign.soak PLAN reads in a process of its own, whose folder for temporary files (TMPDIR) is empty,
and prints what it left: a JSON object on the last line.
"""

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from tests.campaign import Trial
from tests.helpers.paths import ROOT

CLIPS, IMAGES, CYCLES = "clips", "images", "starts and stops"
KINDS = (CLIPS, IMAGES, CYCLES)
COUNTS = {CLIPS: 10_000, IMAGES: 100_000, CYCLES: 200}
MAX_GROWTH = 5.0  # percent
TIMEOUT = 3600  # seconds
BATCH = 16
SAMPLINGS = 100  # of the memory
WARM_UP = 0.2  # share of the samples before the memory counts
SETTLING = 10.0  # seconds in which threads and processes that are ending may end


def trial(number: int, folder: Path, count: int | None = None, workers: int = 1, fault: str = "") -> Trial:
    """Read in a process of its own.

    Args:
        number: of the trial.
        folder: for temporary files; the data are kept beside it.
        count: samples, or starts; None: COUNTS.
        workers: processes that read, or the largest number of them.
        fault: Python statement that plants a fault in the process.
    """
    kind = KINDS[number % len(KINDS)]
    count = count or COUNTS[kind]
    plan = {"kind": kind, "count": count, "root": str(folder.parent), "workers": workers, "seed": number}
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign.soak", json.dumps({**plan, "fault": fault})],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        return Trial(kind, count, [f"trial {number}: exit code {done.returncode}: {done.stderr[-3000:]}"], {})
    found = json.loads(done.stdout.splitlines()[-1])
    grown = [f"{name}: {value:.1f}" for name, value in found["figures"].items() if value > MAX_GROWTH]
    return Trial(kind, count, [f"trial {number}: {line}" for line in found["failures"] + grown], found["figures"])


def main(text: str) -> None:
    plan = json.loads(text)
    exec(plan.pop("fault"), {})
    failures, figures = (start_and_stop if plan["kind"] == CYCLES else read_through)(**plan)
    print(json.dumps({"failures": failures, "figures": figures}))


def read_through(kind: str, count: int, root: str, workers: int, seed: int) -> tuple[list[str], dict[str, float]]:
    """Read `count` samples; return what went wrong, and the growth of the memory in percent."""
    from zoo.data.stream import open_training

    dataset = split(kind, root)
    _take(dataset, 2, workers, seed, is_training=True)  # imports, and what the first use of a library keeps
    before, batches = settled(), count // BATCH
    used: list[tuple[int, int]] = []
    stream = open_training(dataset, seed, BATCH, 0, batches, num_workers=workers)
    for number, batch in enumerate(stream):
        del batch
        if number % max(1, batches // SAMPLINGS) == 0:
            used.append(memory())
    stream.close()
    figures = {}
    for name, values in zip(("parent", "workers"), zip(*used[int(WARM_UP * len(used)) :])):
        if max(values):
            quarter = max(1, len(values) // 4)
            figures[f"growth of the {name} (%)"] = (max(values[-quarter:]) / max(values[:quarter]) - 1) * 100
    return additions(before), figures


def start_and_stop(kind: str, count: int, root: str, workers: int, seed: int) -> tuple[list[str], dict[str, float]]:
    """Start and stop reading `count` times, after none, some or all batches; return what was left."""
    rng = random.Random(seed)
    sets = [split(name, root) for name in (CLIPS, IMAGES)]
    for dataset in sets:
        _take(dataset, 2, workers, seed, is_training=True)
    before = settled()
    for cycle in range(count):
        dataset, processes, taken = rng.choice(sets), rng.randint(0, workers), rng.randrange(4)
        _take(dataset, taken, processes, seed, is_training=rng.random() < 0.5)
        if found := additions(before):
            return [f"start {cycle}, {processes} workers, {taken} batches: {line}" for line in found], {}
    return [], {}


def _take(dataset: Any, taken: int, workers: int, seed: int, is_training: bool) -> None:
    """Take some batches of training or of an evaluation, and stop."""
    from zoo.data.stream import EvaluationBatches, EvaluationReader, open_training

    if is_training:
        reader = batches = open_training(dataset, seed, BATCH, 0, 3, num_workers=workers)
    else:
        reader = EvaluationReader(EvaluationBatches(dataset, seed, BATCH // 4), workers)
        batches = reader.read()
    for _ in range(taken):
        next(batches, None)
    reader.close()


def split(kind: str, root: str) -> Any:
    """Return the training split of a demo set, which is made when it is missing."""
    from zoo.data.demo import motion, shapes

    folder = f"{root}/read-{kind}"
    if kind == CLIPS:
        settings = motion.Settings(root=folder, train_clips=16, val_clips=8, size=64, segments=4, threads=1)
        return motion.load(settings)[0]
    return shapes.load(shapes.Settings(root=folder, train_images=48, val_images=8, size=48, threads=1))[0]


def traces() -> dict[str, int]:
    """Count what this process may leave behind."""
    me = psutil.Process()
    gc.collect()
    return {
        "descriptors": me.num_fds(),
        "mapped batches": Path("/proc/self/maps").read_text().count("/memfd:element"),
        "threads": threading.active_count(),
        "processes": len(me.children(recursive=True)),
        "temporary files": len(os.listdir(tempfile.gettempdir())),
    }


def settled() -> dict[str, int]:
    """Count it when threads that read ahead have ended, which hold files open."""
    end = time.monotonic() + SETTLING
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.1)
    return traces()


def additions(before: dict[str, int]) -> list[str]:
    """Return a line for everything that there is more of than before, when nothing changes any more."""
    end = time.monotonic() + SETTLING
    while True:
        found = [f"{name}: {new} instead of {before[name]}" for name, new in traces().items() if new > before[name]]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def memory() -> tuple[int, int]:
    """Return the resident bytes of this process and of its descendants."""
    me, others = psutil.Process(), 0
    for child in me.children(recursive=True):
        try:
            others += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return me.memory_info().rss, others


if __name__ == "__main__":
    main(sys.argv[1])
