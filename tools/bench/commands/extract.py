"""Compute the throughput that DLPerf-style logs of others tell: as their scripts count it, and correctly."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.extraction import mindspore, plsc
from zoo.bench.extraction.names import LogName, parse
from zoo.bench.extraction.results import BASE, Result, Runs, group, result
from zoo.bench.extraction.speeds import Speeds, Window

EPILOG = """\
FOLDER holds <case>/<model>_b<batch>_<precision>_<run>.log, as DLPerf's scripts write them (case: 1n1g, 4n8g ...).
Lines of MindSpore's ResNet50 and of PLSC's ArcFace are recognized. A file instead of a folder is what the scripts have
printed, or a report that quotes it: lines `.../1n1g/rn50_b128_fp32_4.log {4: 369.81}`.

  published   as github.com/Oneflow-Inc/DLPerf's scripts count, with their errors
  corrected   the printed times or speeds of all ranks over the steps that the text promises
  by time     from the time stamps of the lines, which counts the waiting for data too

example: python tools/extract.py logs/mindspore/resnet50/bz128 --drop 100 --last 200 --json bz128.json

Exit codes: 0 read, 2 nothing can be read."""
KINDS = {"mindspore": mindspore, "plsc": plsc}
WINDOWS = {"mindspore": Window(20, 120), "plsc": Window(50, 150)}  # defaults of the scripts
WAYS = ("published", "corrected", "by_time")
QUOTED = re.compile(r"^\s*(?P<path>\S+\.log) (?P<runs>\{[\d:., ]+\})\s*$")
RUN = re.compile(r"(\d{1,9}): (\d{1,12}(?:\.\d{1,9})?)")
MAX_FILE = 256 << 20  # bytes of a log that are read


class Extract(NamedTuple):
    """What was read.

    Attributes:
        speeds: of every run.
        unread: files that are no logs of DLPerf, with the reason.
    """

    speeds: list[tuple[LogName, Speeds]]
    unread: list[str]


def read_folder(folder: Path, window: Window | None) -> Extract:
    """Read the logs <folder>/*/*.log. window: None for the default of the script of each log."""
    speeds, unread = [], []
    for path in sorted(folder.glob("*/*.log")):
        name = parse(path.as_posix())
        if name is None:
            unread.append(f"{path}: not named <N>n<G>g/<model>_b<batch>_<precision>_<run>.log")
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_FILE).splitlines()
        kind = next((kind for kind, module in KINDS.items() if any(map(module.MARK.search, lines))), None)
        if kind is None:
            unread.append(f"{path}: no line of MindSpore's ResNet50 or PLSC's ArcFace")
            continue
        speeds.append((name, KINDS[kind].count(lines, name, window or WINDOWS[kind])))
    return Extract(speeds, unread)


def read_printed(file: Path) -> Extract:
    """Read what the scripts print: for each log, the speeds of the runs so far."""
    found: dict[tuple[str, str, int], tuple[LogName, Speeds]] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        quoted = QUOTED.match(line)
        name = quoted and parse(quoted["path"])
        if not (quoted and name):
            continue
        for run, speed in RUN.findall(quoted["runs"]):
            key = (name.model, name.case, int(run))
            found.setdefault(key, (name._replace(run=int(run)), Speeds(float(speed), None, None, ())))
    return Extract(list(found.values()), [])


def tables(speeds: Sequence[tuple[LogName, Speeds]]) -> dict[str, Result]:
    """Return the scripts' JSON by way of counting; a way that gives no speed is left out."""
    batches = {(name.model, name.case): name.batch for name, _ in speeds}
    grouped = {way: group([(name, getattr(speed, way)) for name, speed in speeds]) for way in WAYS}
    return {way: result(_rounded(runs), batches) for way, runs in grouped.items() if runs}


def describe(extract: Extract) -> list[str]:
    """Return the lines of a report."""
    found = tables(extract.speeds)
    lines = []
    for model, cases in found.get("published", {}).items():
        lines.append(f"{model}: samples/s, median of the runs (speed-up)")
        lines.append(f"  {'case':<6}" + "".join(f"{way.replace('_', ' '):>20}" for way in found))
        for case in sorted(cases, key=_cards):
            cells = [_cell(found[way].get(model, {}).get(case, {})) for way in found]
            lines.append(f"  {case:<6}" + "".join(f"{cell:>20}" for cell in cells))
    lines += [f"  {name.path}: {remark}" for name, speeds in extract.speeds for remark in speeds.remarks]
    lines += [f"  not read: {reason}" for reason in extract.unread]
    if any(BASE not in {name.case for name, _ in extract.speeds if name.model == model} for model in _models(extract)):
        lines.append(f"  without a run {BASE} the scripts compute no medians and no speed-ups")
    return lines


def report(extract: Extract) -> dict[str, Any]:
    """Return everything as JSON types."""
    runs = [
        {"path": name.path, **{way: getattr(speeds, way) for way in WAYS}, "remarks": list(speeds.remarks)}
        for name, speeds in extract.speeds
    ]
    return {**tables(extract.speeds), "runs": runs, "unread": extract.unread}


def _rounded(runs: Runs) -> Runs:
    return {
        model: {case: {run: round(speed, 2) for run, speed in of_case.items()} for case, of_case in cases.items()}
        for model, cases in runs.items()
    }


def _models(extract: Extract) -> set[str]:
    return {name.model for name, _ in extract.speeds}


def _cards(case: str) -> int:
    nodes, cards = case.rstrip("g").split("n")
    return int(nodes) * int(cards)


def _cell(values: dict[str, Any]) -> str:
    if "median_speed" not in values:
        return "-"
    return f"{values['median_speed']:.2f} ({values['speedup']:.2f})"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="FOLDER", help="folder of the cases, or a file of printed speeds")
    parser.add_argument("--drop", type=int, metavar="N", help="steps left out at the start; default as the script")
    parser.add_argument("--last", type=int, metavar="N", help="last step that counts; default as the script")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to a file")
    arguments = parser.parse_args(argv)
    if (arguments.drop is None) != (arguments.last is None):
        parser.error("--drop and --last belong together")
    if arguments.drop is not None and not 0 <= arguments.drop < arguments.last:
        parser.error("--drop must be less than --last")
    window = Window(arguments.drop, arguments.last) if arguments.drop is not None else None
    try:
        source = arguments.source
        extract = read_folder(source, window) if source.is_dir() else read_printed(source)
    except OSError as error:
        print(f"error: {error.filename or source}: cannot be read ({error.strerror})", file=sys.stderr)
        return 2
    if not extract.speeds:
        reasons = "".join(f"\n  {reason}" for reason in extract.unread)
        print(f"error: {source}: no log of DLPerf's ResNet50 or ArcFace; see --help{reasons}", file=sys.stderr)
        return 2
    print("\n".join(describe(extract)))
    if arguments.json:
        arguments.json.write_text(json.dumps(report(extract), indent=1) + "\n", encoding="utf-8")
    return 0
