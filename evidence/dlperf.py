"""Compute the throughput in DLPerf-style logs of others: as their scripts count it, and correctly."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo import program
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.program import count, natural
from zoo.table import table

EPILOG = """\
FOLDER holds <case>/<model>_b<batch>_<precision>_<run>.log, as DLPerf's scripts write them (case: 1n1g, 4n8g ...).
Lines of MindSpore's ResNet50 and of PLSC's ArcFace are recognized.

  published   as github.com/Oneflow-Inc/DLPerf's scripts count, with their errors
  corrected   the printed times or speeds of all ranks over the steps that the text promises

example: %(prog)s logs/mindspore/resnet50/bz128 --drop 100 --last 200 --json bz128.json"""
WAYS = ("published", "corrected")
BASE = "1n1g"
NAME = re.compile(r"(?:^|/)(\d+)n(\d+)g/([^/_]+)_b(\d+)_[^/_]+_\d+\.log$")
MINDSPORE_STEP = re.compile(r"epoch:\s(?P<epoch>\d{1,9}) step:\s(?P<steps>\d{1,9})")
MINDSPORE_TIME = re.compile(r"epoch time:\s(?P<milliseconds>\d{1,12}\.\d{3})")
PLSC_LINE = re.compile(r"Pass:0 batch:(?P<batch>\d{1,9}) .{0,500}? qps:(?P<speed>\d{1,12}\.\d{1,9})")
PLSC_PERIOD = 10  # batches per line
Result = dict[str, dict[str, Any]]  # model -> case -> average_speed, batch_size_per_device, median_speed, speedup


class LogName(NamedTuple):
    """Contents of a log's path, <case>/<model>_b<batch>_<precision>_<run>.log."""

    path: str  # as given
    case: str  # such as 2n8g, 2 nodes of 8 cards
    nodes: int
    ranks: int  # cards of all nodes
    model: str
    batch: int  # samples per card

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
    """Samples per second of one run; None where a way of counting gives none."""

    published: float | None  # as the script counts
    corrected: float | None = None  # from the figures that the framework prints, over the right steps
    remarks: tuple[str, ...] = ()  # what the script counts wrongly in this log


class Kind(NamedTuple):
    """Logs of a project: how they are recognized and counted, and the steps that their script counts by default."""

    mark: re.Pattern[str]
    measure: Callable[[Sequence[str], LogName, Window], Speeds]
    window: Window


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the cases")
    parser.add_argument("--drop", type=natural, metavar="N", help="steps left out at the start; default as the script")
    parser.add_argument("--last", type=count, metavar="N", help="last step that counts; default as the script")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    drop, last = arguments.drop, arguments.last
    if (drop is None) != (last is None) or (drop is not None and drop >= last):
        raise UserError("--drop, --last: give both, the first one below the second")
    require_new(arguments.json, "--json")
    speeds, unread = read_folder(arguments.folder, None if drop is None else Window(drop, last))
    if not speeds:
        reasons = "".join(f"\n  {reason}" for reason in unread)
        raise UserError(f"{arguments.folder}: no log of DLPerf's ResNet50 or ArcFace; see --help{reasons}")
    runs = [{"path": name.path, **speed._asdict()} for name, speed in speeds]
    found = results(speeds)
    print_report(describe(speeds, found, unread), {**found, "runs": runs, "unread": unread}, arguments.json)
    return 0


def read_folder(folder: Path, window: Window | None) -> tuple[list[tuple[LogName, Speeds]], list[str]]:
    """Return the speeds in the logs <folder>/*/*.log, and a line for each file that is no log of DLPerf.

    window: steps to count, None for those of the script of each log.
    """
    speeds, unread = [], []
    for path in sorted(folder.glob("*/*.log")):
        name = parse_name(path.as_posix())
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        kind = next((kind for kind in KINDS if any(map(kind.mark.search, lines))), None)
        if name is None:
            unread.append(f"{path}: not named <N>n<G>g/<model>_b<batch>_<precision>_<run>.log")
        elif kind is None:
            unread.append(f"{path}: no line of MindSpore's ResNet50 or PLSC's ArcFace")
        else:
            speeds.append((name, kind.measure(lines, name, window or kind.window)))
    return speeds, unread


def describe(speeds: Sequence[tuple[LogName, Speeds]], found: Mapping[str, Result], unread: Sequence[str]) -> list[str]:
    """Return the lines of a report."""
    lines = []
    ranks = {name.case: name.ranks for name, _ in speeds}
    for model, cases in found.get("published", {}).items():
        lines.append(f"{model}: samples/s, median of the runs (speed-up)")
        rows = [
            (case, *(_cell(found[way].get(model, {}).get(case, {})) for way in found))
            for case in sorted(cases, key=lambda case: ranks.get(case, 0))
        ]
        lines += table(rows, ("case", *found))
        if BASE not in {name.case for name, _ in speeds if name.model == model}:
            lines.append(f"  without a run {BASE} the scripts compute no medians and no speed-ups")
    lines += [f"  {name.path}: {remark}" for name, speed in speeds for remark in speed.remarks]
    return lines + [f"  not read: {reason}" for reason in unread]


def _cell(values: Mapping[str, Any]) -> str | None:
    return f"{values['median_speed']:.2f} ({values['speedup']:.2f})" if "median_speed" in values else None


def parse_name(path: str) -> LogName | None:
    """Read the path of a log; None if it is not one of DLPerf's."""
    found = NAME.search(path)
    if not found:
        return None
    nodes, cards, model, batch = found.groups()
    return LogName(path, f"{nodes}n{cards}g", int(nodes), int(nodes) * int(cards), model, int(batch))


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
    if sum(used):
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
    return Speeds(published, corrected, tuple(remarks))


def count_plsc(lines: Sequence[str], name: LogName, window: Window) -> Speeds:
    """Compute the throughput of a run of PLSC's ArcFace.

    Every rank prints, every tenth batch from 0 on, the global samples per second since its last line (waiting for data
    left out):

        INFO 2021-01-11 10:20:30,123 entry.py:1020] Pass:0 batch:50 lr:0.10000000 loss:35.1 qps:397.44

    The script (PaddlePaddle/PLSC/extract_paddle_logs.py of Oneflow-Inc/DLPerf, commit 0aadb1e) averages the lines
    number 5 to 14, times the number of nodes, as if one rank per node wrote to the log.
    """
    found = [match for line in lines if (match := PLSC_LINE.search(line))]
    batches = [int(match["batch"]) for match in found]
    speeds = [float(match["speed"]) for match in found]
    chosen = slice(window.drop // PLSC_PERIOD * name.nodes, window.last // PLSC_PERIOD * name.nodes)
    published = round(float(np.mean(speeds[chosen])), 2) if speeds[chosen] else None
    # A line stands for the batches since the last one: that of batch 60 for 51 to 60.
    counted = [speed for batch, speed in zip(batches, speeds) if window.drop < batch <= window.last and speed]
    # Equal numbers of samples: the mean of their times, not of their speeds.
    corrected = len(counted) / sum(1 / speed for speed in counted) if counted else None
    remarks = []
    right = range(window.drop + PLSC_PERIOD, window.last + PLSC_PERIOD, PLSC_PERIOD)
    if set(batches[chosen]) != set(right):
        numbers = Counter(batches[chosen])
        used = ", ".join(f"{batch} ({numbers[batch]}x)" for batch in sorted(numbers)) or "none"
        remarks.append(f"the script takes lines of batch {used} instead of {right[0]} to {right[-1]}")
    expected = len(right) * (batches.count(0) or 1)
    if len(counted) < expected:
        remarks.append(f"the log ends early: {len(counted)} of {expected} lines to count")
    return Speeds(published, corrected, tuple(remarks))


KINDS = (
    Kind(MINDSPORE_TIME, count_mindspore, Window(20, 120)),
    Kind(PLSC_LINE, count_plsc, Window(50, 150)),
)


def results(speeds: Sequence[tuple[LogName, Speeds]]) -> dict[str, Result]:
    """Return the JSON that the scripts write, by way of counting; a way that gives no speed is left out.

    All numbers are rounded to two decimals. Without a run on one card there are no medians, and as the scripts do it,
    the average is that of the last run, all speed-ups are 1, and an empty case 1n1g appears.
    """
    batches = {(name.model, name.case): name.batch for name, _ in speeds}
    found: dict[str, Result] = {}
    for way in WAYS:
        runs: dict[str, dict[str, list[float]]] = {}
        for name, speed in speeds:
            value = getattr(speed, way)
            if value is not None:
                runs.setdefault(name.model, {}).setdefault(name.case, []).append(round(value, 2))
        for model, cases in runs.items():
            rows = {case: _row(cases, case, batches[model, case]) for case in cases}
            found.setdefault(way, {})[model] = rows if BASE in rows else {**rows, BASE: {"average_speed": {}}}
    return found


def _row(cases: Mapping[str, list[float]], case: str, batch: int) -> dict[str, Any]:
    speeds = cases[case]
    if BASE not in cases:
        return {"average_speed": round(speeds[-1], 2), "batch_size_per_device": batch, "speedup": 1.0}
    return {
        "average_speed": round(sum(speeds) / len(speeds), 2),
        "batch_size_per_device": batch,
        "median_speed": _median(speeds),
        "speedup": round(_median(speeds) / _median(cases[BASE]), 2),
    }


def _median(speeds: Sequence[float]) -> float:
    return round(float(np.median(speeds)), 2)
