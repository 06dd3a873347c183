"""The page of a run in one file: curves, what the best checkpoint predicts rightly and wrongly, recipe, environment."""

import io
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo import templates
from zoo.data import durable, extras
from zoo.data.errors import UserError, parsing, printable
from zoo.data.formats import masks, regular
from zoo.logs import journal
from zoo.logs.journal import Event
from zoo.logs.lines import TOP5_CLASSES, duration, end_text, run_lines, share_text, throughput
from zoo.run import checkpoint, start
from zoo.run.folder import RECIPE
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.tasks import face, multilabel
from zoo.visualization import canvas, drawing
from zoo.visualization.charts import Chart, chart
from zoo.visualization.evaluation import Evaluation, Prediction, Recorder, loss_of_labels, loss_of_mistake, wrong_pixels
from zoo.weights import recorded

FILE = "report.html"
TEMPLATE = Path(__file__).with_name("page.html")
SHOWN = 12  # samples, and as many of the worst
MAX_CELLS = 32  # classes of a confusion matrix with numbers; of more the most frequent confusions are listed
CONFUSIONS = 30
Values = dict[str, Any]  # that the template uses
LOSSES = {"classify": loss_of_mistake, "multilabel": loss_of_labels, "segment": wrong_pixels}


def write_page(run_folder: Path) -> Path:
    """Write <run>/report.html, which needs no other file; a page from before is replaced.

    The best checkpoint is evaluated again, in its framework. Where that is not possible, the page says why.
    """
    extras.require("jinja2")
    folder = os.fspath(run_folder)
    events = journal.history(folder)
    begin = journal.first(events, "begin")
    if begin is None:
        raise UserError(
            f"{folder} is no run that has begun: its {journal.FILE} has no event `begin`; name the folder of a run"
        )
    with parsing(f"{os.path.join(folder, journal.FILE)} is damaged"):
        charts, environment = _curves(events, begin), _environment(begin)
        facts = {"summary": _summary(events, begin), "charts": charts, "environment": environment}
    best = recorded.resolve_pointer(folder)
    evaluated: Values = {"note": "There is no best checkpoint to evaluate."}
    if best != folder:
        try:
            evaluated = _evaluate(best)
        except UserError as error:
            evaluated = {"note": f"The best checkpoint could not be evaluated: {error}"}
    with parsing(f"{os.path.join(folder, RECIPE)} cannot be read"):
        recipe = _recipe(folder)
    name = os.path.basename(os.path.abspath(folder))
    text = templates.render(TEMPLATE, name=name, recipe=recipe, address=canvas.data_address, **facts, **evaluated)
    path = os.path.join(folder, FILE)
    temporary = f"{path}.{os.getpid()}.writing"  # another process may write the page, too
    try:
        durable.replace(path, text.encode(errors="replace"), temporary)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return Path(path)


def _recipe(folder: str) -> str:
    """Return the resolved recipe of a run as text, or else that of its newest checkpoint."""
    path, newest = os.path.join(folder, RECIPE), checkpoint.latest(folder)
    if newest and not os.path.exists(path):
        return str(checkpoint.load_record(newest)["recipe"])
    return regular.read(path).decode(errors="replace")


def page_line(run_folder: str) -> str:
    """Write the page of a run that has ended; return the line of its table that names it, or says why there is none."""
    try:
        return f"{'page':<12}{write_page(Path(run_folder))}"
    except UserError as error:
        return printable(f"{'page':<12}none: {error}")


def class_scores(confusion: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and IoU of each class, None where they are not defined.

    Args:
        confusion: counts (K, K + 1): rows are labels, columns predictions, the last one of none of the classes.
    """
    right, labelled, predicted = np.diag(confusion), confusion.sum(1), confusion[:, :-1].sum(0)

    def share(part: int, whole: int) -> float | None:
        return float(part / whole) if whole else None

    return [
        {
            "name": str(name),
            "precision": share(right[i], predicted[i]),
            "recall": share(right[i], labelled[i]),
            "f1": share(2 * right[i], labelled[i] + predicted[i]),
            "iou": share(right[i], labelled[i] + predicted[i] - right[i]),
            "count": int(labelled[i]),
        }
        for i, name in enumerate(names)
    ]


def label_scores(state: Mapping[str, np.ndarray], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return scores of each class that an image has, at the probability where F1 is best. state: of the metric."""
    seen = state["seen"] > 0
    rows = []
    for label in np.flatnonzero(state["targets"][seen].any(0)).tolist():
        scores, has = state["logits"][seen][:, label].astype(np.float64), state["targets"][seen][:, label] > 0
        limit, f1 = multilabel.best_threshold(scores, has)
        predicted = scores > limit
        values = {"name": names[label], "ap": multilabel.average_precision(scores, has), "f1": f1}
        values |= {"precision": float(has[predicted].mean()), "recall": float(predicted[has].mean())}
        rows.append({**values, "threshold": float(1 / (1 + np.exp(-limit))), "count": int(has.sum())})
    return rows


def roc(distance: np.ndarray, same: np.ndarray) -> list[tuple[float, float]]:
    """Return false and true accept rates at every threshold of the distances (P,) of readable pairs."""
    order = np.argsort(distance, kind="stable")
    steps = np.append(np.diff(distance[order]) > 0, True)  # equal distances are accepted together
    accepted = [np.append(0, np.cumsum(kind[order])[steps] / kind.sum()) for kind in (~same, same)]
    return list(zip(*(rates.tolist() for rates in accepted)))


def _evaluate(path: str) -> Values:
    """Evaluate a checkpoint and keep what the page shows. The program is silent meanwhile."""
    with (
        redirect_stdout(io.StringIO()),
        start.start(resolve_recipe(Options(None, weights=path, eval_only=True))) as run,
    ):
        job, task = run.job, run.config.task.task
        metric, *averaged = (job.task.Metric(job.val_set, run.config.task) for _ in range(1 + bool(job.plan.ema)))
        counted = averaged[0] if averaged else metric  # which has chosen the best checkpoint
        recorder = Recorder(counted, len(job.val_set), 1, SHOWN, LOSSES.get(task))
        metrics = (metric, recorder) if averaged else (recorder, None)
        found = run.evaluations.measure(metrics, lambda sample: None)
        evaluation = Evaluation(job.val_set, run.config.seed, recorder.summed, recorder.predictions)
        hidden = ["seconds", "accuracy"] if job.task.PRIMARY != "accuracy" else ["seconds"]
        hidden += ["top5"] * (len(job.val_set.classes) < TOP5_CLASSES) + ["bad"] * (not found["bad"])
        values = {**found.get("ema", found), "bad": found["bad"]}
        printed = {
            name: str(value) if isinstance(value, int) else f"{value:.4f}"
            for name, value in values.items()
            if isinstance(value, int | float) and name not in hidden
        }
        shown = _faces(evaluation) if task == "face" else _classes(evaluation, recorder.worst, task == "segment")
        if "top1" in printed and (count := share_text(values["top1"], found["samples"])):
            printed["top1"] += f" ({count})"
        for name, threshold in values["thresholds"].items() if task == "face" else ():
            printed[f"{name}: threshold"] = face.threshold_text(name, threshold)
        return {"metrics": printed, **shown}


def _classes(evaluation: Evaluation, worst: Sequence[Prediction], are_scenes: bool) -> Values:
    draw = drawing.scene_tile if are_scenes else partial(drawing.class_tile, frames_shown=1)
    parts = {"Worst mistakes": worst, "Samples": evaluation.predictions}
    images = {title: [draw(evaluation, each) for each in predictions] for title, predictions in parts.items()}
    found: Values = {"images": images, "width": 420 if are_scenes else 150}
    names = [str(name) for name in evaluation.dataset.classes]
    if "targets" in evaluation.state:
        return {**found, "classes": label_scores(evaluation.state, names)}
    if "confusion" not in evaluation.state:
        return found
    matrix = evaluation.state["confusion"]
    rows = class_scores(matrix, names)
    if are_scenes:
        for row, color in zip(rows, masks.class_colors(names).tolist()):
            row["color"] = f"rgb({', '.join(map(str, color))})"
    columns = [*names, canvas.OTHER] if matrix[:, -1].any() else names
    if len(names) > MAX_CELLS:
        wrong = sorted(((count, i, j) for (i, j), count in np.ndenumerate(matrix) if count and i != j), reverse=True)
        confusions = [(names[i], columns[j], int(count)) for count, i, j in wrong[:CONFUSIONS]]
        return {**found, "classes": rows, "confusions": confusions}
    counts, totals = matrix[:, : len(columns)], np.maximum(matrix.sum(1, keepdims=True), 1)
    cells = [list(zip(*pair)) for pair in zip(counts.tolist(), (counts / totals).tolist())]
    return {**found, "classes": rows, "columns": columns, "confusion": list(zip(names, cells))}


def _faces(evaluation: Evaluation) -> Values:
    state, lines = evaluation.state, {}
    for name, first, count in evaluation.dataset.sets:  # type: ignore[attr-defined]
        rows = slice(first, first + count)
        known = (state["seen"][rows] > 0) & np.isfinite(state["distance"][rows])
        lines[name] = roc(state["distance"][rows][known], state["same"][rows][known] > 0)
    images = {title.capitalize(): tiles for title, tiles in drawing.pair_tiles(evaluation).items()}
    return {"accept_rates": chart("True accept rate", "false accept rate", lines), "images": images, "width": 160}


def _curves(events: Sequence[Event], begin: Event) -> list[Chart]:
    axis = "epoch" if "epoch" in str(begin.get("eval_every")) else "step"

    def course(name: str, key: str) -> list[tuple[float, float]]:
        own = journal.named(events, name)
        return [(event[axis], event[key]) for event in own if isinstance(event.get(key), int | float)]

    metric = begin.get("metric") or "metric"
    charts = (
        chart("Loss", axis, {"training": course("train", "loss"), "validation": course("eval", "loss")}),
        chart("Learning rate", axis, {"rate": course("train", "lr")}),
        chart(f"Validation: {metric}", axis, {metric: course("eval", "accuracy")}),
    )
    return [each for each in charts if each]


def _summary(events: Sequence[Event], begin: Event) -> dict[str, str]:
    """Return what the run is and has reached, by title."""
    best, end = journal.best_evaluation(events), journal.first(events, "end")
    evals = journal.named(events, "eval")
    last, metric = events[-1], begin.get("metric") or "metric"
    return {
        f"best {metric}": f"{best['accuracy']:.4f} at step {best['step']}, epoch {best['epoch']:.3g}" if best else "-",
        f"last {metric}": f"{evals[-1]['accuracy']:.4f}" if evals else "-",
        "state": end_text(end, begin["steps"]).removeprefix("is ").removeprefix("has ")
        if end
        else f"step {last.get('step', 0)} of {begin['steps']}",
        "began": time.strftime("%Y-%m-%d %H:%M", time.localtime(begin["time"])),
        "time": duration(last["time"] - begin["time"]),
        "throughput": throughput(events),
        "computed with": f"{begin['framework']} {begin.get('framework_version') or ''} on {begin['device']}",
    }


def _environment(begin: Event) -> dict[str, str]:
    """Return where and how the run was computed, by title; what is not known is left out."""
    host, git = (begin.get("hosts") or [{}])[0], begin.get("git") or {}
    values = {
        "command": " ".join(begin.get("command") or ()),
        **{line.split()[0].rstrip(":"): line.partition(" ")[2] for line in run_lines(begin)},
        "protocol": begin.get("protocol"),
        "seed": begin.get("seed"),
        "processor": host.get("cpu"),
        "system": host.get("os"),
        "driver": host.get("driver"),
        "commit": git and f"{git['commit']}{' with changes' if git['dirty'] else ''}",
    }
    return {name: str(value) for name, value in values.items() if value not in (None, "", {})}
