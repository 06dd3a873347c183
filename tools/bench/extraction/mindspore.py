"""Logs of MindSpore's ResNet50 in DLPerf.

Every rank prints, for each group of steps that runs as one on the device:

    epoch: 11 step: 10, loss is 6.9
    epoch time: 3461.117 ms, per step time: 346.112 ms

The script (MindSpore/resnet50v1.5/extract_mindspore_logs_time.py of Oneflow-Inc/DLPerf, commit b87a23a) adds up the
times of all ranks between two values of epoch x step, and divides by a fixed number of steps.
"""

import re
from collections.abc import Sequence

from zoo.bench.extraction.names import LogName
from zoo.bench.extraction.speeds import Speeds, Window

STEP = re.compile(r"epoch:\s(?P<epoch>\d{1,9}) step:\s(?P<steps>\d{1,9})")
TIME = re.compile(r"epoch time:\s(?P<milliseconds>\d{1,12}\.\d{3})")
MARK = TIME


def count(lines: Sequence[str], name: LogName, window: Window) -> Speeds:
    """Compute the throughput of a run."""
    used = _published_times(lines, window)
    published = None
    if sum(used) / 1000 > 1e-5:
        published = round(float(name.global_batch) / (sum(used) / 1000 / (window.steps * name.ranks)), 2)
    steps = [STEP.search(line) for line in lines]
    group = next((int(found["steps"]) for found in steps if found), 0)  # steps per line
    logged = sum(found is not None and found["epoch"] == "1" for found in steps)  # ranks that write to this log
    times = [float(found["milliseconds"]) for line in lines if (found := TIME.search(line))]
    if not group or not logged:
        return Speeds(published, None, None, ("no line `epoch: 1 step: ...`",))
    counted = times[window.drop // group * logged : window.last // group * logged]
    expected = window.steps // group * logged
    corrected = name.global_batch * group * len(counted) / (sum(counted) / 1000) if sum(counted) else None
    return Speeds(published, corrected, None, _remarks(used, counted, expected, logged, name, window))


def _published_times(lines: Sequence[str], window: Window) -> list[float]:
    """Return the times that the script adds up, in milliseconds."""
    times, step = [], 0
    for line in lines:
        found = STEP.search(line)
        if found:
            step = int(found["steps"]) * int(found["epoch"])
            if step > window.last:
                break
        time = TIME.search(line)
        if time and step > window.drop:
            times.append(float(time["milliseconds"]))
    return times


def _remarks(
    used: Sequence[float], counted: Sequence[float], expected: int, logged: int, name: LogName, window: Window
) -> tuple[str, ...]:
    remarks = []
    if logged != name.ranks:
        remarks.append(f"{logged} of {name.ranks} ranks are in the log, but the script divides by all of them")
    if len(used) != expected:
        remarks.append(f"the script adds up {len(used)} times and divides by the steps of {expected}")
    elif sorted(used) != sorted(counted):
        remarks.append(f"the script adds up times of other steps than {window.drop + 1} to {window.last}")
    if len(counted) < expected:
        remarks.append(f"the log ends early: {len(counted)} of {expected} times to count")
    return tuple(remarks)
