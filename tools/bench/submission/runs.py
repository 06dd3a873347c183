"""Runs of a submission, one per number of cards, and what each lacks to be submitted."""

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from zoo.bench.airank_log import deviations, parse
from zoo.bench.submission import rules
from zoo.bench.submission.rules import Listed
from zoo.config import loader
from zoo.config.convert import plain
from zoo.data.errors import UserError
from zoo.data.parsing import parsing
from zoo.logs import airank, journal
from zoo.logs.journal import Event
from zoo.run.folder import RECIPE

PATH_KEYS = ("out", "data.root", "data.cache", "weights_dir")  # keys of a recipe that are paths of the machine
# Keys of a recipe that may differ between scales: where files are, how they are read, how an update is divided, and
# what follows from its size. Seed and framework are compared by themselves.
SCALE_KEYS = (
    *PATH_KEYS,
    *("device", "data.workers", "data.threads", "data.cache_gb", "seed", "framework"),
    *("train.batch", "train.accumulate", "train.global_batch", "train.eval_batch", "train.straggler_timeout"),
    *("train.steps", "train.eval_every", "train.save_every", "train.log_every", "train.keep_checkpoints"),
)
# Fields that a resume must keep. The division of an update into micro-batches, workers, threads and the evaluation's
# batch are free. The digest of the recipe leaves out its folder and its device.
SAME = (
    *("framework", "framework_version", "ranks", "global_batch", "compute", "level", "precision", "loss_scale"),
    *("channels_last", "compile", "loader", "recipe_sha256"),
)
NEEDED = {  # event -> fields without which nothing can be submitted
    "load": ("at", "train_samples"),
    "eval": ("step", "epoch", "accuracy"),
    "end": ("step", "epoch"),
    "begin": (
        *("framework", "framework_version", "recipe", "model", "arch", "task", "data", "protocol", "metric"),
        *("weights", "compute", "eval_every", "ranks", "batch", "accumulate", "global_batch", "parameters", "seed"),
        *("train_samples", "val_samples", "warmup_epochs", "optimizer", "command", "hosts"),
    ),
}


class Run(NamedTuple):
    """A run.

    Attributes:
        folder: its folder.
        events: its journal, without what resumes have reverted.
        begin: the event of this name.
        recipe: dotted keys -> plain values of its resolved recipe.
    """

    folder: str
    events: list[Event]
    begin: Event
    recipe: dict[str, Any]

    def log(self, target: Decimal | None) -> list[str]:
        """Return the lines of its AI-Rank log. target: for target_quality_time; None for the target of its recipe."""
        own = self.begin.get("target")
        return airank.lines(self.events, own if target is None else float(target), self.begin["warmup_epochs"])

    @property
    def cards(self) -> int:
        """Processes of the run, one per card."""
        return self.begin["ranks"]

    @property
    def checksum(self) -> str:
        """Checksum of the data, `missing` without one."""
        return str(next(event for event in self.events if event["event"] == "load").get("checksum") or "missing")


def read(folder: str) -> Run:
    """Read a run.

    Raises:
        UserError: the folder holds none, or its journal cannot be used.
    """
    path = os.path.join(folder, journal.FILE)
    if not os.path.isfile(path):
        raise UserError(f"{folder}: not the folder of a run, there is no {journal.FILE} in it")
    with parsing(f"{path}: damaged, a line is not an event of a run"):
        events = journal.history(folder)
    for name in ("begin", "load"):
        if not any(event["event"] == name for event in events):
            raise UserError(f"{path}: the run has not begun; there is no event `{name}`")
    for event in events:
        absent = [name for name in ("time", *NEEDED.get(event["event"], ())) if event.get(name) is None]
        if absent:
            raise UserError(
                f"{path}: an event `{event['event']}` has no {', '.join(absent)}; of a run of an older version, train "
                "again with this one"
            )
        if event["event"] == "load":
            event.setdefault("checksum", None)
    recipe = os.path.join(folder, RECIPE)
    entries = loader.read(recipe, recorded=True) if os.path.isfile(recipe) else {}
    begin = next(event for event in events if event["event"] == "begin")
    return Run(folder, events, begin, {key: plain(entry.value) for key, entry in entries.items()})


def missing(runs: Mapping[int, Run], listed: Listed | None) -> list[str]:
    """List everything that runs lack to be submitted for a model.

    Args:
        runs: number of cards -> run.
        listed: the model in AI-Rank's list, None if it is not in it.
    """
    lines = []
    for cards, run in runs.items():
        found = [*_record(run), *_resumes(run), *_end(run, listed and listed.target), *_cards(run, cards)]
        found += [*_data(run, listed), *_method(run, listed)] if listed else []
        lines += [f"{rules.log_name(cards)} ({run.folder}): {text}" for text in found]
    return lines + _between(runs)


def _record(run: Run) -> list[str]:
    """List what the record of a run lacks: the code, the checksum and the recipe."""
    git, lines = run.begin.get("git"), []
    if not git:
        lines.append("the commit of the code is unknown; train from a git checkout")
    elif git.get("dirty"):
        lines.append(f"the code differed from commit {str(git.get('commit'))[:12]}; commit it and train again")
    if not rules.CHECKSUM.fullmatch(run.checksum):
        lines.append(f"the checksum of the data is {run.checksum}, not one of files")
    return lines + ([] if run.recipe else [f"no {RECIPE}"])


def _resumes(run: Run) -> list[str]:
    """List what a run was continued with that it had not begun with; a field that an event lacks is the same."""
    then, lines = _facts(run.begin), []
    for event in run.events:
        if event["event"] == "data_changed":
            at, checksum = event.get("first_step"), event.get("checksum")
            lines.append(f"continued at step {at} with data whose checksum is {checksum}")
        if event["event"] != "resume":
            continue
        at = f"continued at step {event['step']} with"
        for name, value in _facts(event).items():
            if name in then and value != then[name]:
                lines.append(f"{at} {name} {value}, begun with {then[name]}")
        git = event.get("git")
        if "git" in event and not git:
            lines.append(f"{at} code of an unknown commit")
        elif git and git.get("dirty"):
            lines.append(f"{at} code that differed from its commit")
    return lines


def _facts(event: Event) -> dict[str, Any]:
    """Return the fields that must not change, by the names of the messages."""
    facts = {name: event[name] for name in SAME if name in event}
    facts |= {f"optimizer.{name}": value for name, value in (event.get("optimizer") or {}).items()}
    git, hosts = event.get("git") or {}, event.get("hosts") or []
    facts |= {"commit": git["commit"]} if "commit" in git else {}
    return facts | ({"machines": len(hosts), "accelerators": accelerators(hosts)} if hosts else {})


def accelerators(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return number and names of all accelerators of a run."""
    names = sorted(str(device.get("name")) for host in hosts for device in host.get("accelerators") or [])
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"


def _end(run: Run, target: Decimal | None) -> list[str]:
    """List what is missing at the end of a run: all numbers of its log are recomputed from the log."""
    if run.begin.get("speed"):
        return ["a run of --speed: it trains to no target"]
    lines = [] if any(event["event"] == "end" for event in run.events) else ["unfinished: continue it with --resume"]
    evals = [event["accuracy"] for event in run.events if event["event"] == "eval"]
    if not evals:
        return [*lines, "no evaluation"]
    if target is not None and not max(evals) >= float(target):
        best = f"best {run.begin['metric']} {max(evals):.4f}"
        return [*lines, f"target not reached: {best}, AI-Rank's target is {target}"]
    return lines or deviations(parse(run.log(target)), target, run.begin["train_samples"], run.begin["warmup_epochs"])


def _cards(run: Run, cards: int) -> list[str]:
    """List why a run is not one of so many cards."""
    hosts, lines = run.begin["hosts"], []
    if run.cards != cards:
        lines.append(f"the run had {run.cards} processes, not {cards}")
    devices = [device.get("name") for host in hosts for device in host.get("accelerators") or []]
    if len(devices) < run.cards:
        lines.append(f"the run used {len(devices)} GPUs or NPUs for {run.cards} processes")
    if len(hosts) != rules.nodes(cards):
        lines.append(f"the run used {len(hosts)} machines, {cards} cards are {rules.nodes(cards)} by the rules")
    return lines + ([f"the machines differ: {accelerators(hosts)}"] if len(set(devices)) > 1 else [])


def _data(run: Run, listed: Listed) -> list[str]:
    """List why data and evaluations of a run are not those of the rules."""
    begin, lines = run.begin, []
    name, _, views = begin["protocol"].partition("/")
    if name != listed.protocol:
        return [f"trained on {begin['data']} ({begin['protocol']}), the rules demand {listed.dataset}"]
    for split, key, limits in (
        ("training", "train_samples", listed.train_samples),
        ("validation", "val_samples", listed.val_samples),
    ):
        if not limits[0] <= begin[key] <= limits[1]:
            numbers = " to ".join(map(str, dict.fromkeys(limits)))
            lines.append(f"{begin[key]} {split} samples; {listed.dataset} has {numbers}")
    if not re.fullmatch(listed.views, views):
        lines.append(f"evaluated by the protocol {begin['protocol']}, which is not that of AI-Rank's target")
    total = begin["val_samples"]
    for event in (event for event in run.events if event["event"] == "eval"):
        count, bad = event.get("samples"), event.get("bad") or 0
        if count is not None and count != total:
            lines.append(f"the evaluation at step {event['step']} took {count} of {total} samples")
        elif total - bad < min(listed.val_samples[0], total):
            lines.append(f"{bad} of {total} samples of the evaluation at step {event['step']} could not be read")
    return lines


def _method(run: Run, listed: Listed) -> list[str]:
    """List how model and evaluation differ from what the rules demand."""
    depth, every = run.begin["arch"].get("depth"), run.begin["eval_every"]
    lines = [f"the model has depth {depth}, not {rules.DEPTH}"] if depth != rules.DEPTH else []
    if run.begin["metric"] != listed.metric:
        lines.append(f"the accuracy is {run.begin['metric']}, the rules demand {listed.metric}")
    if listed.eval_every and every != listed.eval_every:
        lines.append(f"evaluated every {every}, the rules demand every {listed.eval_every}")
    return lines


def _between(runs: Mapping[int, Run]) -> list[str]:
    """List what differs between runs that must not: only the number of cards does."""
    (first, base), *others = runs.items()
    lines = []
    for cards, run in others:
        pair = f"{rules.log_name(first)} and {rules.log_name(cards)} differ in"
        now, then = _compared(run), _compared(base)
        lines += [f"{pair} {name}: {then[name]} and {now[name]}" for name in now if now[name] != then[name]]
        is_scaled = base.recipe.get("optim.base_batch") or run.recipe.get("optim.base_batch")
        for key in sorted({**base.recipe, **run.recipe}):
            old, new = base.recipe.get(key), run.recipe.get(key)
            if old != new and key not in SCALE_KEYS and (key != "optim.lr" or is_scaled):
                lines.append(f"{pair} the recipe: {key}: {old} and {new}")
    return lines


def _compared(run: Run) -> dict[str, Any]:
    facts = {name: run.begin[name] for name in ("framework", "framework_version", "model", "seed", "compute")}
    kinds = {device.get("name") for host in run.begin["hosts"] for device in host.get("accelerators") or []}
    facts |= {"the code": (run.begin.get("git") or {}).get("commit"), "the checksum of the data": run.checksum}
    return facts | {"the machines": " and ".join(sorted(map(str, kinds))) or "none"}
