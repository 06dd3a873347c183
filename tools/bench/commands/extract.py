"""Compute the throughput in DLPerf-style logs of others: as their scripts count it, and correctly."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo import program
from zoo.bench.dlperf import BASE, KINDS, LogName, Result, Speeds, Window, parse_name, results
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.table import table

EPILOG = """\
FOLDER holds <case>/<model>_b<batch>_<precision>_<run>.log, as DLPerf's scripts write them (case: 1n1g, 4n8g ...).
Lines of MindSpore's ResNet50 and of PLSC's ArcFace are recognized. A file instead of a folder is what the scripts have
printed, or a report that quotes it: lines `.../1n1g/rn50_b128_fp32_4.log {4: 369.81}`.

  published   as github.com/Oneflow-Inc/DLPerf's scripts count, with their errors
  corrected   the printed times or speeds of all ranks over the steps that the text promises
  by time     from the time stamps of the lines, which counts the waiting for data too

example: %(prog)s logs/mindspore/resnet50/bz128 --drop 100 --last 200 --json bz128.json"""
QUOTED = re.compile(r"^\s*(?P<path>\S+\.log) (?P<runs>\{[\d:., ]+\})\s*$")
RUN = re.compile(r"(\d{1,9}): (\d{1,12}(?:\.\d{1,9})?)")
MAX_FILE = 256 << 20  # bytes of a log that are read


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("source", type=Path, metavar="FOLDER", help="folder of the cases, or a file of printed speeds")
    parser.add_argument("--drop", type=int, metavar="N", help="steps left out at the start; default as the script")
    parser.add_argument("--last", type=int, metavar="N", help="last step that counts; default as the script")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    source, drop, last = arguments.source, arguments.drop, arguments.last
    if (drop is None) != (last is None) or (drop is not None and not 0 <= drop < last):
        raise UserError("--drop, --last: give both, the first one from 0 to below the second")
    require_new(arguments.json, "--json")
    unread: list[str] = []
    try:
        window = None if drop is None else Window(drop, last)
        speeds = read_folder(source, window, unread) if source.is_dir() else read_printed(source)
    except OSError as error:
        raise UserError(f"{error.filename or source}: cannot be read ({error.strerror})") from None
    if not speeds:
        reasons = "".join(f"\n  {reason}" for reason in unread)
        raise UserError(f"{source}: no log of DLPerf's ResNet50 or ArcFace; see --help{reasons}")
    runs = [{"path": name.path, **speed._asdict()} for name, speed in speeds]
    found = results(speeds)
    print_report(describe(speeds, found, unread), {**found, "runs": runs, "unread": unread}, arguments.json)
    return 0


def read_folder(folder: Path, window: Window | None, unread: list[str]) -> list[tuple[LogName, Speeds]]:
    """Read the logs <folder>/*/*.log.

    Args:
        folder: folder of the cases.
        window: steps to count, None for those of the script of each log.
        unread: receives a line for each file that is no log of DLPerf.
    """
    speeds = []
    for path in sorted(folder.glob("*/*.log")):
        name = parse_name(path.as_posix())
        if name is None:
            unread.append(f"{path}: not named <N>n<G>g/<model>_b<batch>_<precision>_<run>.log")
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_FILE).splitlines()
        kind = next((kind for kind in KINDS if any(map(kind.mark.search, lines))), None)
        if kind is None:
            unread.append(f"{path}: no line of MindSpore's ResNet50 or PLSC's ArcFace")
            continue
        speeds.append((name, kind.measure(lines, name, window or kind.window)))
    return speeds


def read_printed(file: Path) -> list[tuple[LogName, Speeds]]:
    """Read what the scripts print: for each log, the speeds of the runs so far."""
    found: dict[tuple[str, str, int], tuple[LogName, Speeds]] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        quoted = QUOTED.match(line)
        name = quoted and parse_name(quoted["path"])
        if quoted and name:
            for run, speed in RUN.findall(quoted["runs"]):
                key = (name.model, name.case, int(run))
                found.setdefault(key, (name._replace(run=int(run)), Speeds(float(speed))))
    return list(found.values())


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
        lines += table(rows, ("case", *(way.replace("_", " ") for way in found)))
    lines += [f"  {name.path}: {remark}" for name, speed in speeds for remark in speed.remarks]
    lines += [f"  not read: {reason}" for reason in unread]
    models = {name.model for name, _ in speeds}
    if any(BASE not in {name.case for name, _ in speeds if name.model == model} for model in models):
        lines.append(f"  without a run {BASE} the scripts compute no medians and no speed-ups")
    return lines


def _cell(values: Mapping[str, Any]) -> str | None:
    return f"{values['median_speed']:.2f} ({values['speedup']:.2f})" if "median_speed" in values else None
