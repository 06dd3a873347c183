"""Comparison of a run with an undisturbed one: events, tensors, metrics, links and the names of all files."""

import filecmp
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.logs.airank import TAG
from zoo.logs.journal import Event, history

LEFT_OUT = ("resume", "data_wait")  # events of the disturbance, and those that depend on time
FIELDS = {  # of events, those that time and place do not change
    "load": ("checksum", "train_samples"),
    "begin": ("steps", "parameters"),
    "train": ("step", "epoch", "lr", "loss", "grad_norm", "scale", "skipped", "consecutive_skips"),
    "bad": ("step", "epoch", "name", "reason", "replaced_by"),
    "save": ("step",),
    "best": ("step",),
    "end": ("step", "epoch", "reason"),
}
TIMED = ("time", "seconds")
TENSORS = ("model.safetensors", "ema.safetensors", "update.safetensors")


def differences(run: Path, undisturbed: Path) -> list[str]:
    """Return a line for everything in which a run differs from an undisturbed one of the same recipe."""
    found = [*_events(run, undisturbed), *_names(run, undisturbed), *_checkpoints(run, undisturbed)]
    if _without_times(run / "airank.log") != _without_times(undisturbed / "airank.log"):
        found.append("airank.log: other lines")
    return found


def _events(run: Path, undisturbed: Path) -> list[str]:
    ours, theirs = (
        [_fixed(event) for event in history(str(folder)) if event["event"] not in LEFT_OUT]
        for folder in (run, undisturbed)
    )
    if ours == theirs:
        return []
    found = [f"lost: {event}" for event in _without(theirs, ours)] + [
        f"added: {event}" for event in _without(ours, theirs)
    ]
    return found or [f"events in another order: {[(event['event'], event.get('step')) for event in ours]}"]


def _without(events: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events that have no equal one among the others."""
    left, found = list(others), []
    for event in events:
        if event in left:
            left.remove(event)
        else:
            found.append(event)
    return found


def _fixed(event: Event) -> Mapping[str, Any]:
    names = FIELDS.get(event["event"], tuple(name for name in event if name not in ("event", *TIMED)))
    return {"event": event["event"], **{name: event[name] for name in names if name in event}}


def _names(run: Path, undisturbed: Path) -> list[str]:
    """Compare what files there are; TensorBoard begins a new one at each start."""
    ours, theirs = (
        {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "tensorboard" not in path.parts}
        for folder in (run, undisturbed)
    )
    return [f"left over: {name}" for name in sorted(ours - theirs)] + [
        f"missing: {name}" for name in sorted(theirs - ours)
    ]


def _checkpoints(run: Path, undisturbed: Path) -> list[str]:
    found = []
    for name in ("last", "best"):
        ours, theirs = (os.path.realpath(folder / "checkpoints" / name) for folder in (run, undisturbed))
        if os.path.basename(ours) != os.path.basename(theirs):
            found.append(f"{name} is {os.path.basename(ours)} instead of {os.path.basename(theirs)}")
    for theirs in sorted((undisturbed / "checkpoints").glob("step-*/*")):
        ours = run / theirs.relative_to(undisturbed)
        same = True
        if ours.exists() and theirs.name in TENSORS:
            same = filecmp.cmp(ours, theirs, shallow=False)
        elif ours.exists() and theirs.name == "evaluation.json":
            same = _metrics(ours) == _metrics(theirs)
        if not same:
            found.append(f"{ours.relative_to(run)} differs")
    return found


def _metrics(path: Path) -> dict[str, Any]:
    return {name: value for name, value in json.loads(path.read_text()).items() if name not in TIMED}


def _without_times(path: Path) -> list[str]:
    """Return the lines of an AI-Rank log but for their times and durations."""
    lines = path.read_text().splitlines() if path.exists() else []
    texts = [line.removeprefix(TAG).split(maxsplit=1)[1] for line in lines]
    return [text if text.startswith("eval_accuracy") else text.split(":")[0] for text in texts]
