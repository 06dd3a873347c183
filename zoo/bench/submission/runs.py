"""Runs of a submission, one per number of cards, and what each lacks to be submitted."""

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from zoo.bench.airank_log import deviations, parse
from zoo.bench.report.runs import changes
from zoo.bench.submission import rules
from zoo.bench.submission.rules import Listed
from zoo.config import loader
from zoo.data.convert import plain
from zoo.data.errors import UserError, parsing
from zoo.logs import airank, journal
from zoo.logs.journal import Event, first, named
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
FREE = ("device", "batch", "accumulate", "workers", "threads")  # settings that a resume may change
NEEDED = (  # fields of `begin` without which nothing can be submitted
    *("framework", "framework_version", "recipe", "model", "arch", "task", "data", "protocol", "metric", "weights"),
    *("compute", "eval_every", "ranks", "batch", "accumulate", "global_batch", "parameters", "seed", "train_samples"),
    *("val_samples", "warmup_epochs", "optimizer", "command", "hosts"),
)


class Run(NamedTuple):
    folder: str  # its folder
    events: list[Event]  # its journal, without what resumes have reverted
    begin: Event  # the event of this name
    recipe: dict[str, Any]  # dotted keys -> plain values of its resolved recipe

    def log(self, target: Decimal | None) -> list[str]:
        """Return the lines of its AI-Rank log. target: for target_quality_time; None for the target of its recipe."""
        own = self.begin.get("target")
        return airank.lines(self.events, own if target is None else float(target), self.begin["warmup_epochs"])

    @property
    def cards(self) -> int:
        return self.begin["ranks"]

    @property
    def checksum(self) -> str:
        """Checksum of the data, `missing` without one."""
        return str((first(self.events, "load") or {}).get("checksum") or "missing")


def read(folder: str) -> Run:
    path = os.path.join(folder, journal.FILE)
    if not os.path.isfile(path):
        raise UserError(f"{folder}: not the folder of a run, there is no {journal.FILE} in it")
    with parsing(f"{path}: damaged, a line is not an event of a run"):
        events = journal.history(folder)
    begin = first(events, "begin")
    if begin is None or first(events, "load") is None:
        raise UserError(f"{path}: the run has not begun; there are no events `load` and `begin`")
    absent = [name for name in NEEDED if begin.get(name) is None]
    if absent:
        raise UserError(f"{path}: `begin` has no {', '.join(absent)}; of a run of an older version, train again")
    recipe = os.path.join(folder, RECIPE)
    entries = loader.read(recipe) if os.path.isfile(recipe) else {}
    return Run(folder, events, begin, {key: plain(entry.value) for key, entry in entries.items()})


def missing(runs: Mapping[int, Run], listed: Listed | None) -> list[str]:
    """List everything that runs, by their number of cards, lack to be submitted for a model."""
    lines = []
    for cards, run in runs.items():
        found = [*_record(run), *_resumes(run), *_end(run, listed and listed.target), *_cards(run, cards)]
        found += _method(run, listed) if listed else []
        lines += [f"{rules.log_name(cards)} ({run.folder}): {text}" for text in found]
    return lines + _between(runs)


def _record(run: Run) -> list[str]:
    """List what the record of a run lacks: the code, the checksum and the recipe."""
    lines = [] if rules.CHECKSUM.fullmatch(run.checksum) else [f"the checksum of the data is {run.checksum}"]
    return lines + _code(run.begin.get("git")) + ([] if run.recipe else [f"no {RECIPE}"])


def _code(git: Mapping[str, Any] | None) -> list[str]:
    if not git:
        return ["the commit of the code is unknown; train from a git checkout"]
    if git.get("dirty"):
        return [f"the code differed from commit {str(git.get('commit'))[:12]}; commit it and train again"]
    return []


def _resumes(run: Run) -> list[str]:
    """List what a run was continued with that it had not begun with; a field that an event lacks is the same."""
    begin = run.begin
    lines = [
        f"continued at step {event.get('first_step')} with data whose checksum is {event.get('checksum')}"
        for event in named(run.events, "data_changed")
    ]
    for event in named(run.events, "resume"):
        changed = [name for name in changes(begin, [event]) if name not in FREE]
        version = begin["framework_version"]
        changed += ["framework_version"] if event.get("framework_version", version) != version else []
        if event.get("hosts") and accelerators(event["hosts"]) != accelerators(begin["hosts"]):
            changed.append("machines")
        if "git" in event:
            lines += [f"continued at step {event['step']}: {text}" for text in _code(event["git"])]
            commits = [(one.get("git") or {}).get("commit") for one in (event, begin)]
            changed += ["commit"] if None not in commits and commits[0] != commits[1] else []
        lines += [f"continued at step {event['step']} with another {', '.join(changed)}"] if changed else []
    return lines


def accelerators(hosts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [[str(device.get("name")) for device in host.get("accelerators") or []] for host in hosts]


def _end(run: Run, target: Decimal | None) -> list[str]:
    """List what is missing at the end of a run: all numbers of its log are recomputed from the log."""
    if run.begin.get("speed"):
        return ["a run of --speed: it trains to no target"]
    lines = [] if first(run.events, "end") else ["unfinished: continue it with --resume"]
    evals = [event["accuracy"] for event in named(run.events, "eval")]
    if not evals:
        return [*lines, "no evaluation"]
    if target is not None and not max(evals) >= float(target):
        best = f"best {run.begin['metric']} {max(evals):.4f}"
        return [*lines, f"target not reached: {best}, AI-Rank's target is {target}"]
    return lines or deviations(parse(run.log(target)), target, run.begin["train_samples"], run.begin["warmup_epochs"])


def _cards(run: Run, cards: int) -> list[str]:
    of_hosts, lines = accelerators(run.begin["hosts"]), []
    if run.cards != cards:
        lines.append(f"the run had {run.cards} processes, not {cards}")
    lines += [] if cards in rules.CARDS else [rules.OTHER_CARDS]
    devices = [name for names in of_hosts for name in names]
    if len(devices) < run.cards:
        lines.append(f"the run used {len(devices)} GPUs or NPUs for {run.cards} processes")
    if len(of_hosts) != rules.nodes(cards):
        lines.append(f"the run used {len(of_hosts)} machines, {cards} cards are {rules.nodes(cards)} by the rules")
    return lines + ([f"the machines differ: {', '.join(sorted(set(devices)))}"] if len(set(devices)) > 1 else [])


def _method(run: Run, listed: Listed) -> list[str]:
    begin, lines = run.begin, []
    name, _, views = begin["protocol"].partition("/")
    if name != listed.protocol:
        lines.append(f"trained on {begin['data']} ({begin['protocol']}), the rules demand {listed.dataset}")
    elif not re.fullmatch(listed.views, views):
        lines.append(f"evaluated by the protocol {begin['protocol']}, which is not that of AI-Rank's target")
    for key, (least, most) in (("train_samples", listed.train_samples), ("val_samples", listed.val_samples)):
        if name == listed.protocol and not least <= begin[key] <= most:
            lines.append(f"{key} are {begin[key]}; {listed.dataset} has {least} to {most}")
    for event in named(run.events, "eval"):
        total, bad = begin["val_samples"], event.get("bad") or 0
        taken = total if event.get("samples") is None else event["samples"]
        if name == listed.protocol and (taken != total or taken - bad < min(listed.val_samples[0], total)):
            lines.append(f"the evaluation at step {event['step']} took {taken - bad} of {total} samples")
    depth, every = begin["arch"].get("depth"), begin["eval_every"]
    if depth != rules.DEPTH:
        lines.append(f"the model has depth {depth}, not {rules.DEPTH}")
    if begin["metric"] != listed.metric:
        lines.append(f"the accuracy is {begin['metric']}, the rules demand {listed.metric}")
    if listed.eval_every and every != listed.eval_every:
        lines.append(f"evaluated every {every}, the rules demand every {listed.eval_every}")
    return lines


def _between(runs: Mapping[int, Run]) -> list[str]:
    """List what differs between runs that must not: only the number of cards does."""
    (cards, base), *others = runs.items()
    lines = []
    for other, run in others:
        pair = f"{rules.log_name(cards)} and {rules.log_name(other)} differ in"
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
    kinds = {name for names in accelerators(run.begin["hosts"]) for name in names}
    facts |= {"the code": (run.begin.get("git") or {}).get("commit"), "the checksum of the data": run.checksum}
    return facts | {"the machines": " and ".join(sorted(kinds)) or "none"}
