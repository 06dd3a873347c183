"""Long reading: memory stays flat, and nothing is left behind, not even after many starts and stops."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.campaign import Trial
from tests.campaign.reading.measure import CLIPS, CYCLES, IMAGES
from tests.helpers.paths import ROOT

KINDS = (CLIPS, IMAGES, CYCLES)
COUNTS = {CLIPS: 10_000, IMAGES: 100_000, CYCLES: 200}
MAX_GROWTH = 5.0  # percent
TIMEOUT = 3600  # seconds


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
    plan = {
        "kind": kind,
        "count": count,
        "root": str(folder.parent),
        "workers": workers,
        "seed": number,
        "fault": fault,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign.reading.measure", json.dumps(plan)],
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
