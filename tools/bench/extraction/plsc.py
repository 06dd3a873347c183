"""Logs of PLSC's ArcFace in DLPerf.

Every rank prints, every tenth batch from 0 on, the global samples per second since its last line (waiting for data
left out):

    INFO 2021-01-11 10:20:30,123 entry.py:1020] Pass:0 batch:50 lr:0.10000000 loss:35.1 qps:397.44

The script (PaddlePaddle/PLSC/extract_paddle_logs.py of Oneflow-Inc/DLPerf, commit 0aadb1e) averages the lines number
5 to 14, times the number of nodes, as if one rank per node wrote to the log.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from zoo.bench.extraction.names import LogName
from zoo.bench.extraction.speeds import Speeds, Window

LINE = re.compile(r"Pass:0 batch:(?P<batch>\d{1,9}) .{0,500}? qps:(?P<speed>\d{1,12}\.\d{1,9})")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
MARK = LINE
PERIOD = 10  # batches per line


def count(lines: Sequence[str], name: LogName, window: Window) -> Speeds:
    """Compute the throughput of a run."""
    found = [(line, match) for line in lines if (match := LINE.search(line))]
    batches = [int(match["batch"]) for _, match in found]
    speeds = [float(match["speed"]) for _, match in found]
    chosen = slice(window.drop // PERIOD * name.nodes, window.last // PERIOD * name.nodes)
    published = round(float(np.mean(speeds[chosen])), 2) if speeds[chosen] else None
    # A line stands for the batches since the last one: that of batch 60 for 51 to 60.
    counted = [speed for batch, speed in zip(batches, speeds) if window.drop < batch <= window.last and speed]
    # Equal numbers of samples: the mean of their times, not of their speeds.
    corrected = len(counted) / sum(1 / speed for speed in counted) if counted else None
    by_time = _by_time([line for line, _ in found], batches, name, window)
    return Speeds(published, corrected, by_time, _remarks(batches, batches[chosen], len(counted), window))


def _by_time(lines: Sequence[str], batches: Sequence[int], name: LogName, window: Window) -> float | None:
    """Compute the throughput from the times at which the first rank has done the first and the last batch."""
    times = []
    for batch in (window.drop, window.last):
        line = lines[batches.index(batch)] if batch in batches else ""
        stamp = STAMP.search(line)
        if not stamp:
            return None
        try:
            times.append(datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f"))
        except ValueError:
            return None
    seconds = (times[1] - times[0]).total_seconds()
    return name.global_batch * window.steps / seconds if seconds > 0 else None


def _remarks(batches: Sequence[int], chosen: Sequence[int], counted: int, window: Window) -> tuple[str, ...]:
    remarks = []
    right = range(window.drop + PERIOD, window.last + PERIOD, PERIOD)
    if set(chosen) != set(right):
        numbers = Counter(chosen)
        lines = ", ".join(f"{batch} ({numbers[batch]}x)" for batch in sorted(numbers))
        remarks.append(f"the script takes lines of batch {lines or 'none'} instead of {right[0]} to {right[-1]}")
    logged = batches.count(0) or 1
    if counted < len(right) * logged:
        remarks.append(f"the log ends early: {counted} of {len(right) * logged} lines to count")
    return tuple(remarks)
