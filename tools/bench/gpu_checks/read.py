"""Results of a step, read from the files that its program wrote to the step's folder."""

import json
from pathlib import Path
from typing import Any

from zoo.bench.report import cases, journals
from zoo.logs import journal

RUN, VALUES = "run", "values.json"  # folder of a run of train.py, and file of a program, in the step's folder
MIB = 2**20


def values(folder: Path) -> dict[str, Any]:
    """Return what a program wrote with --json.

    Raises:
        OSError, ValueError: it wrote nothing, or not a whole file.
    """
    return json.loads((folder / VALUES).read_text(encoding="utf-8"))


def speed(folder: Path) -> dict[str, Any]:
    """Return throughput, time of an update, MFU and memory of a speed run.

    Raises:
        ValueError: the run is not complete.
    """
    run = journals.read(str(folder / RUN))
    found = cases.group([run])
    if not found or found[0].speed is None:
        raise ValueError(f"the run is not complete: {run.remark}")
    result, measured = found[0], run.values
    return {
        "device": run.case.device,
        "version": run.facts.get("framework_version"),
        "batch": run.case.batch,
        "compute": run.compute,
        "samples_per_s": measured.samples_per_s,
        "ms": measured.steps.p50,
        "mfu": result.mfu,
        "peak": result.peak.source if result.peak else None,
        "data_wait": measured.data_wait,
        "device_mib": measured.device_memory and measured.device_memory / MIB,
        "host_mib": measured.host_memory and measured.host_memory / MIB,
        "settings": _begin(folder).get("arithmetic"),
    }


def training(folder: Path) -> dict[str, Any]:
    """Return losses, metric and time of a run.

    Raises:
        ValueError: the run has not ended, or has no finite loss.
    """
    run = journals.read(str(folder / RUN))
    if run.state != journals.COMPLETE or not run.losses:
        raise ValueError(f"the run is not complete: {run.remark}")
    return {
        "compute": run.compute,
        "first_loss": run.losses[0].value,
        "last_loss": run.losses[-1].value,
        "metric": run.metric,
        "best": run.values.best,
        "target": run.target,
        "samples_per_s": run.values.samples_per_s,
        "seconds": run.values.total_time,
    }


def _begin(folder: Path) -> dict[str, Any]:
    return next((event for event in journal.history(str(folder / RUN)) if event["event"] == "begin"), {})
