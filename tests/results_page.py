"""The page docs/results.md, written from what lies in docs/results: python -m tests.results_page

A bundle NAME.zip may have beside it NAME.html, the report of it, which is written as well, and a folder NAME with what
`zoo bench` measured on the same day, written by `--json`: update-RECIPE-FRAMEWORK, data-RECIPE and deploy.json.
"""

import json
import os
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT
from zoo.bench.commands import deploy, report, update
from zoo.bench.commands.report import read
from zoo.bench.report.results import Result, group
from zoo.bench.report.runs import SPEED, Run
from zoo.table import table

PAGE, BUNDLES = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
HEAD = """\
# Results

Samples/s and accuracies are those of bundles in `docs/results`, which `zoo verify` recomputes from journals; updates,
loaders and predictions are from JSON files beside them. `python -m tests.results_page` writes this page.
Speeds are medians over runs of a process each, with 95 % intervals; accuracies are means over seeds, with the standard
deviation of one run. Results of other machines are welcome: `zoo publish` writes a bundle.
"""
COLUMNS = (
    "recipe",
    "framework",
    "precision",
    "threads",
    "batch",
    "samples/s",
    "host GiB",
    "accuracy",
    "runs",
    "remark",
)
TAIL = """\
## Not measured yet

No GPU has been at hand. These commands fill a row each:

| report | command |
|---|---|
| AI-Rank, TSM | `zoo reproduce tsm_paddle_airank --world 1x8 -o data.root=DIR` |
| AI-Rank, DeepLabV3+ | `zoo reproduce deeplabv3plus_mmseg_airank --world 1x8 -o data.root=DIR` |
| DLPerf, ResNet50 | `zoo reproduce resnet50_mindspore_dlperf --world 1x8 -o data.root=DIR` |
| DLPerf, ArcFace | `zoo reproduce arcface_plsc_dlperf --world 1x8` |
"""


def page(folder: Path = BUNDLES) -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(section(path) for path in sorted(folder.glob("*.zip"))), TAIL])


def section(path: Path) -> str:
    """Return the section of a bundle, which is verified."""
    runs = read([str(path)], None, None)
    facts = {name: ", ".join(sorted({str(of(run)) for run in runs})) for name, of in FACTS.items()}
    html = path.with_suffix(".html")
    lines = [
        f"## {path.stem}",
        "",
        f"`zoo verify {path.relative_to(ROOT)}`",
        "",
        *([f"- report: [{html.name}](results/{html.name}) of `zoo report`"] if html.exists() else []),
        *(f"- {name}: {text}" for name, text in facts.items()),
        "",
    ]
    cells = [row(each) for each in group(runs)]
    kept = [i for i in range(len(COLUMNS)) if any(each[i] for each in cells)]
    shown = [[each[i] for i in kept] for each in (COLUMNS, *cells)]
    lines += table(shown[1:], shown[0], markdown=True)
    measured = {file.stem: json.loads(file.read_text()) for file in sorted(path.with_suffix("").glob("*.json"))}
    for title, command, header, rows_of in BESIDE:
        rows = rows_of(measured)
        lines += ["", f"### {title}", "", f"`{command}`", "", *table(rows, header, markdown=True)] if rows else []
    return "\n".join(lines) + "\n"


def updates(measured: dict[str, Any]) -> list[tuple[str, ...]]:
    found = [(name.split("-"), report) for name, report in measured.items() if name.startswith("update-")]
    return [
        (recipe, framework, report["compute"], *(f"{1e3 * statistics.median(times):.1f}" for times in loops(report)))
        + (f"{report['ratio']:.3f}",)
        for (_, recipe, framework), report in found
    ]


def loops(report: dict[str, Any]) -> list[list[float]]:
    return [report["seconds"][name] for name in (update.TRAINER, update.BARE)]


def loaders(measured: dict[str, Any]) -> list[tuple[str, ...]]:
    found = [(name.split("-")[1], report) for name, report in measured.items() if name.startswith("data-")]
    return [
        (recipe, loader, f"{speed['ms']:.3f}", f"{speed['cpu_ms']:.3f}", f"{speed['speed']:.2f}")
        for recipe, report in found
        for loader, speed in report["loaders"].items()
    ]


def predictions(measured: dict[str, Any]) -> list[tuple[str, ...]]:
    return [row for model in measured.get("deploy", {"models": []})["models"] for row in deploy.cells(model)]


BESIDE = (  # title, command, header, rows
    ("Updates beside the shortest loop of the framework", "zoo bench update -c RECIPE -o framework=NAME",
     ("recipe", "framework", "computes in", "trainer, ms", "shortest loop, ms", "median ratio of pairs"), updates),
    ("Reading samples, in one thread", "zoo bench data -c RECIPE",
     ("recipe", "loader", "ms per sample", "CPU ms", "speed, to the recipe's loader"), loaders),
    ("Predictions at the full size of the recipes", "zoo bench deploy -n 50 --seconds 30", deploy.HEADER, predictions),
)  # fmt: skip


FACTS = {
    "device": lambda run: run.case.device,
    "date": lambda run: datetime.fromtimestamp(run.began, UTC).strftime("%Y-%m-%d"),
    "system": lambda run: run.facts.get("host_os"),
    "code": lambda run: run.facts.get("commit"),
    "versions": lambda run: f"{run.case.framework} {run.facts.get('framework_version')}",
}


def row(result: Result) -> tuple[str, ...]:
    case, timed, threads = result.case, "", ""
    if case.counting == SPEED and result.speed is not None:  # whole trainings may have shared the machine
        speed, threads = result.speed, result.threads or ""
        timed = f"{speed.median:.4g}"
        if speed.low is not None and not speed.is_noisy:
            timed += f" ({speed.low:.4g} to {speed.high:.4g})"
    return (
        *(str(case.recipe), str(case.framework), str(case.precision), threads, str(case.batch)),
        *(timed, memory(result), accuracy(result.runs), str(len(result.runs)), result.mark),
    )


def memory(result: Result) -> str:
    peak = result.median("host_memory")
    return "" if peak is None else f"{peak / 2**30:.2f}"


def accuracy(runs: list[Run]) -> str:
    """Return the mean of the last evaluations and their standard deviation; "" of runs without one."""
    found = [run.metrics[-1].value for run in runs if run.metrics]
    spread = f" ({statistics.stdev(found):.4f})" if len(found) > 1 else ""
    return f"{runs[0].metric} {statistics.fmean(found):.4f}{spread}" if found else ""


def html_report(bundle: Path) -> str:
    """Return the page that `zoo report BUNDLE --html FILE` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        report.main([os.path.relpath(bundle), "--html", str(file)])
        return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for path in BUNDLES.glob("*.html"):
        path.write_text(html_report(path.with_suffix(".zip")), encoding="utf-8")
