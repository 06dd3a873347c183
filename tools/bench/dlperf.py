"""Throughput in the logs of DLPerf (github.com/Oneflow-Inc/DLPerf): as its scripts count it, and correctly."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

WAYS = ("published", "corrected", "by_time")
BASE = "1n1g"
NAME = re.compile(r"(?:^|/)(\d+)n(\d+)g/([^/_]+)_b(\d+)_([^/_]+)_(\d+)\.log$")
MINDSPORE_STEP = re.compile(r"epoch:\s(?P<epoch>\d{1,9}) step:\s(?P<steps>\d{1,9})")
MINDSPORE_TIME = re.compile(r"epoch time:\s(?P<milliseconds>\d{1,12}\.\d{3})")
PLSC_LINE = re.compile(r"Pass:0 batch:(?P<batch>\d{1,9}) .{0,500}? qps:(?P<speed>\d{1,12}\.\d{1,9})")
PLSC_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ")
PLSC_PERIOD = 10  # batches per line
Result = dict[str, dict[str, Any]]  # model -> case -> average_speed, batch_size_per_device, median_speed, speedup


class LogName(NamedTuple):
    """Contents of a log's path, <case>/<model>_b<batch>_<precision>_<run>.log.

    Attributes:
        path: as given.
        case: such as 2n8g, 2 nodes of 8 cards.
        batch: samples per card.
        run: number of the repetition.
    """

    path: str
    case: str
    nodes: int
    cards: int
    model: str
    batch: int
    precision: str
    run: int

    @property
    def ranks(self) -> int:
        """Cards of all nodes."""
        return self.nodes * self.cards

    @property
    def global_batch(self) -> int:
        return self.ranks * self.batch


class Window(NamedTuple):
    """Steps of a run: the first `drop` are left out, the next ones up to step `last` are counted."""

    drop: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.drop


class Speeds(NamedTuple):
    """Samples per second of one run; None where a way of counting gives none.

    Attributes:
        published: as the script counts.
        corrected: from the figures that the framework prints, over the right steps.
        by_time: from the time stamps of the lines, which also counts the waiting for data.
        remarks: what the script counts wrongly in this log.
    """

    published: float | None
    corrected: float | None = None
    by_time: float | None = None
    remarks: tuple[str, ...] = ()


class Kind(NamedTuple):
    """Logs of a project: how they are recognized and counted, and the steps that their script counts by default."""

    mark: re.Pattern[str]
    measure: Callable[[Sequence[str], LogName, Window], Speeds]
    window: Window


def parse_name(path: str) -> LogName | None:
    """Read the path of a log; None if it is not one of DLPerf's."""
    found = NAME.search(path)
    if not found:
        return None
    nodes, cards, model, batch, precision, run = found.groups()
    return LogName(path, f"{nodes}n{cards}g", int(nodes), int(cards), model, int(batch), precision, int(run))


def count_mindspore(lines: Sequence[str], name: LogName, window: Window) -> Speeds:
    """Compute the throughput of a run of MindSpore's ResNet50. Every rank prints, for each group of steps:

        epoch: 11 step: 10, loss is 6.9
        epoch time: 3461.117 ms, per step time: 346.112 ms

    The script (MindSpore/resnet50v1.5/extract_mindspore_logs_time.py of Oneflow-Inc/DLPerf, commit b87a23a) adds up the
    times of all ranks between two values of epoch x step, and divides by a fixed number of steps.
    """
    used, step = [], 0  # milliseconds that the script adds up
    for line in lines:
        found = MINDSPORE_STEP.search(line)
        if found:
            step = int(found["steps"]) * int(found["epoch"])
            if step > window.last:
                break
        time = MINDSPORE_TIME.search(line)
        if time and step > window.drop:
            used.append(float(time["milliseconds"]))
    published = None
    if sum(used) / 1000 > 1e-5:
        published = round(float(name.global_batch) / (sum(used) / 1000 / (window.steps * name.ranks)), 2)
    steps = [found for line in lines if (found := MINDSPORE_STEP.search(line))]
    group = int(steps[0]["steps"]) if steps else 0  # steps per line
    logged = sum(found["epoch"] == "1" for found in steps)  # ranks that write to this log
    times = [float(found["milliseconds"]) for line in lines if (found := MINDSPORE_TIME.search(line))]
    if not group or not logged:
        return Speeds(published, remarks=("no line `epoch: 1 step: ...`",))
    counted = times[window.drop // group * logged : window.last // group * logged]
    expected = window.steps // group * logged
    corrected = name.global_batch * group * len(counted) / (sum(counted) / 1000) if sum(counted) else None
    remarks = []
    if logged != name.ranks:
        remarks.append(f"{logged} of {name.ranks} ranks are in the log, but the script divides by all of them")
    if len(used) != expected:
        remarks.append(f"the script adds up {len(used)} times and divides by the steps of {expected}")
    elif sorted(used) != sorted(counted):
        remarks.append(f"the script adds up times of other steps than {window.drop + 1} to {window.last}")
    if len(counted) < expected:
        remarks.append(f"the log ends early: {len(counted)} of {expected} times to count")
    return Speeds(published, corrected, None, tuple(remarks))


def count_plsc(lines: Sequence[str], name: LogName, window: Window) -> Speeds:
    """Compute the throughput of a run of PLSC's ArcFace.

    Every rank prints, every tenth batch from 0 on, the global samples per second since its last line (waiting for data
    left out):

        INFO 2021-01-11 10:20:30,123 entry.py:1020] Pass:0 batch:50 lr:0.10000000 loss:35.1 qps:397.44

    The script (PaddlePaddle/PLSC/extract_paddle_logs.py of Oneflow-Inc/DLPerf, commit 0aadb1e) averages the lines
    number 5 to 14, times the number of nodes, as if one rank per node wrote to the log.
    """
    found = [(line, match) for line in lines if (match := PLSC_LINE.search(line))]
    batches = [int(match["batch"]) for _, match in found]
    speeds = [float(match["speed"]) for _, match in found]
    chosen = slice(window.drop // PLSC_PERIOD * name.nodes, window.last // PLSC_PERIOD * name.nodes)
    published = round(float(np.mean(speeds[chosen])), 2) if speeds[chosen] else None
    # A line stands for the batches since the last one: that of batch 60 for 51 to 60.
    counted = [speed for batch, speed in zip(batches, speeds) if window.drop < batch <= window.last and speed]
    # Equal numbers of samples: the mean of their times, not of their speeds.
    corrected = len(counted) / sum(1 / speed for speed in counted) if counted else None
    stamps = [_plsc_stamp(found, batches, batch) for batch in (window.drop, window.last)]
    by_time = None
    if stamps[0] and stamps[1] and stamps[1] > stamps[0]:
        by_time = name.global_batch * window.steps / (stamps[1] - stamps[0]).total_seconds()
    remarks = []
    right = range(window.drop + PLSC_PERIOD, window.last + PLSC_PERIOD, PLSC_PERIOD)
    if set(batches[chosen]) != set(right):
        numbers = Counter(batches[chosen])
        used = ", ".join(f"{batch} ({numbers[batch]}x)" for batch in sorted(numbers)) or "none"
        remarks.append(f"the script takes lines of batch {used} instead of {right[0]} to {right[-1]}")
    expected = len(right) * (batches.count(0) or 1)
    if len(counted) < expected:
        remarks.append(f"the log ends early: {len(counted)} of {expected} lines to count")
    return Speeds(published, corrected, by_time, tuple(remarks))


def _plsc_stamp(found: Sequence[tuple[str, Any]], batches: Sequence[int], batch: int) -> datetime | None:
    """Return the time at which the first rank has done a batch."""
    stamp = PLSC_STAMP.search(found[batches.index(batch)][0]) if batch in batches else None
    try:
        return datetime.strptime(stamp[1], "%Y-%m-%d %H:%M:%S,%f") if stamp else None
    except ValueError:
        return None


KINDS = (
    Kind(MINDSPORE_TIME, count_mindspore, Window(20, 120)),
    Kind(PLSC_LINE, count_plsc, Window(50, 150)),
)


def results(speeds: Sequence[tuple[LogName, Speeds]]) -> dict[str, Result]:
    """Return the scripts' JSON by way of counting; a way that gives no speed is left out."""
    batches = {(name.model, name.case): name.batch for name, _ in speeds}
    found: dict[str, Result] = {}
    for way in WAYS:
        runs: dict[str, dict[str, dict[int, float]]] = {}
        for name, speed in speeds:
            value = getattr(speed, way)
            if value is not None:
                runs.setdefault(name.model, {}).setdefault(name.case, {})[name.run] = round(value, 2)
        if runs:
            found[way] = result(runs, batches)
    return found


def result(runs: Mapping[str, Mapping[str, Mapping[int, float]]], batches: Mapping[tuple[str, str], int]) -> Result:
    """Compute the JSON that the scripts write.

    Args:
        runs: model -> case -> run -> samples per second.
        batches: samples per card by model and case.

    Returns:
        All numbers rounded to two decimals. Without a run on one card there are no medians, and as the scripts do it,
        the average is that of the last run, all speed-ups are 1, and an empty case 1n1g appears.
    """
    return {model: _cases(model, cases, batches) for model, cases in runs.items()}


def _cases(
    model: str, cases: Mapping[str, Mapping[int, float]], batches: Mapping[tuple[str, str], int]
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for case, runs in cases.items():
        speeds, batch = list(runs.values()), batches[model, case]
        if BASE in cases:
            rows[case] = {
                "average_speed": round(sum(speeds) / len(speeds), 2),
                "batch_size_per_device": batch,
                "median_speed": _median(runs),
                "speedup": round(_median(runs) / _median(cases[BASE]), 2),
            }
        else:
            rows[case] = {"average_speed": round(speeds[-1], 2), "batch_size_per_device": batch, "speedup": 1.0}
    return rows if BASE in rows else {**rows, BASE: {"average_speed": {}}}


def _median(runs: Mapping[int, float]) -> float:
    return round(float(np.median(list(runs.values()))), 2)
