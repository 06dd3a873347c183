"""Runs of a submission, one per number of cards, and what each lacks to be submitted."""

import os
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from zoo.bench.airank_log.grammar import parse
from zoo.bench.airank_log.rules import deviations
from zoo.bench.submission import record, resumes, rules
from zoo.bench.submission.rules import Listed
from zoo.config import loader
from zoo.config.convert import plain
from zoo.data.errors import UserError
from zoo.data.parsing import parsing
from zoo.logs import airank, journal
from zoo.logs.journal import Event
from zoo.run import directory

PATH_KEYS = ("out", "data.root", "data.cache", "weights_dir")  # keys of a recipe that are paths of the machine
# Keys of a recipe that may differ between scales: where files are, how they are read, how an update is divided, and
# what follows from its size.
SCALE_KEYS = (
    *PATH_KEYS,
    *("device", "data.workers", "data.threads", "data.cache_gb"),
    *("train.batch", "train.accumulate", "train.global_batch", "train.eval_batch", "train.straggler_timeout"),
    *("train.steps", "train.eval_every", "train.save_every", "train.log_every", "train.keep_checkpoints"),
)


class Run(NamedTuple):
    """A run.

    Attributes:
        folder: its folder.
        events: of its journal, without what resumes have reverted.
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
    begin = record.check(path, events)
    recipe = os.path.join(folder, directory.RECIPE)
    entries = loader.read(recipe, recorded=True) if os.path.isfile(recipe) else {}
    return Run(folder, events, begin, {key: plain(entry.value) for key, entry in entries.items()})


def missing(runs: Mapping[int, Run], listed: Listed | None) -> list[str]:
    """List everything that runs lack to be submitted for a model.

    Args:
        runs: number of cards -> run.
        listed: the model in AI-Rank's list, None if it is not in it.
    """
    lines = []
    for cards, run in runs.items():
        found = [
            *_record(run),
            *resumes.problems(run.begin, run.events),
            *_end(run, listed and listed.target),
            *_cards(run, cards),
        ]
        found += [*_data(run, listed), *_method(run, listed)] if listed else []
        lines += [f"{rules.log_name(cards)} ({run.folder}): {text}" for text in found]
    return lines + _between(runs)


def log_deviations(run: Run, target: Decimal | None) -> list[str]:
    """List the deviations of a run's log from the rules; all of it is recomputed from the log."""
    own = run.begin.get("target")
    threshold = target if target is not None else Decimal(str(own)) if own is not None else None
    return deviations(parse(run.log(target)), threshold, run.begin["train_samples"], run.begin["warmup_epochs"])


def _record(run: Run) -> list[str]:
    """List what the record of a run lacks: the code and the checksum."""
    git = run.begin.get("git")
    load = next((event for event in run.events if event["event"] == "load"), {})
    lines = []
    if not git:
        lines.append("the commit of the code is unknown; train from a git checkout")
    elif git.get("dirty"):
        lines.append(f"the code differed from commit {str(git.get('commit'))[:12]}; commit it and train again")
    found = load.get("checksum")
    if not found:
        lines.append("no checksum of the data")
    elif not rules.CHECKSUM.fullmatch(str(found)):
        lines.append(f"the checksum of the data is {found}, not one of files")
    if run.begin.get("checksum", found) != found:
        lines.append(f"the checksum of the data is {found} in the event `load`, {run.begin['checksum']} in `begin`")
    if not run.recipe:
        lines.append(f"no {directory.RECIPE}")
    return lines


def _end(run: Run, target: Decimal | None) -> list[str]:
    """List what is missing at the end of a run."""
    evals = [event["accuracy"] for event in run.events if event["event"] == "eval"]
    if run.begin.get("speed"):
        return ["a run of --speed: it trains to no target"]
    lines = [] if any(event["event"] == "end" for event in run.events) else ["unfinished: continue it with --resume"]
    if not evals:
        return [*lines, "no evaluation"]
    best = max(evals)
    if target is not None and not best >= float(target):
        lines.append(f"target not reached: best {run.begin['metric']} {best:.4f}, AI-Rank's target is {target}")
    elif not lines:
        lines += log_deviations(run, target)
    return lines


def _cards(run: Run, cards: int) -> list[str]:
    """List why a run is not one of so many cards."""
    hosts, lines = run.begin["hosts"], []
    if run.cards != cards:
        lines.append(f"the run had {run.cards} processes, not {cards}")
    accelerators = sum(len(host.get("accelerators") or []) for host in hosts)
    if accelerators < run.cards:
        lines.append(f"the run used {accelerators} GPUs or NPUs for {run.cards} processes")
    if len(hosts) != rules.nodes(cards):
        lines.append(f"the run used {len(hosts)} machines, {cards} cards are {rules.nodes(cards)} by the rules")
    names = list(dict.fromkeys(resumes.accelerators(hosts)))
    if len(names) > 1:
        lines.append(f"the machines differ: {', '.join(names)}")
    return lines


def _data(run: Run, listed: Listed) -> list[str]:
    """List why the data of a run is not that of the rules."""
    begin = run.begin
    name, _, views = begin["protocol"].partition("/")
    if name != listed.protocol:
        return [f"trained on {begin['data']} ({begin['protocol']}), the rules demand {listed.dataset}"]
    lines = []
    for split, key, limits in (
        ("training", "train_samples", listed.train_samples),
        ("validation", "val_samples", listed.val_samples),
    ):
        if limits and not limits[0] <= begin[key] <= limits[1]:
            numbers = " to ".join(map(str, dict.fromkeys(limits)))
            lines.append(f"{begin[key]} {split} samples; {listed.dataset} has {numbers}")
    if not re.fullmatch(listed.views, views):
        lines.append(f"evaluated by the protocol {begin['protocol']}, which is not that of AI-Rank's target")
    return lines + _evaluations(run, listed)


def _evaluations(run: Run, listed: Listed) -> list[str]:
    """List the evaluations that do not cover the validation split; of older versions the size is not known."""
    total, lines = run.begin["val_samples"], []
    least = listed.val_samples[0] if listed.val_samples else total
    for event in (event for event in run.events if event["event"] == "eval"):
        count, bad = event.get("samples"), event.get("bad") or 0
        if count is not None and count != total:
            lines.append(f"the evaluation at step {event['step']} took {count} of {total} samples")
        elif total - bad < min(least, total):
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
        for name in ("framework", "framework_version", "model", "seed", "compute"):
            if run.begin[name] != base.begin[name]:
                lines.append(f"{pair} {name}: {base.begin[name]} and {run.begin[name]}")
        commits = [(other.begin.get("git") or {}).get("commit") for other in (base, run)]
        if commits[0] != commits[1]:
            lines.append(f"{pair} the code: {commits[0]} and {commits[1]}")
        names = [" and ".join(dict.fromkeys(resumes.accelerators(other.begin["hosts"]))) for other in (base, run)]
        if names[0] != names[1]:
            lines.append(f"{pair} the machines: {names[0] or 'none'}; {names[1] or 'none'}")
        if checksum(base) != checksum(run):
            lines.append(f"{pair} the checksum of the data")
        lines += [f"{pair} the recipe: {text}" for text in _recipe_differences(base.recipe, run.recipe)]
    return lines


def checksum(run: Run) -> str:
    """Return the checksum of a run's data, `missing` without one."""
    return next((str(event.get("checksum")) for event in run.events if event["event"] == "load"), "missing")


def _recipe_differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    is_scaled = old.get("optim.base_batch") or new.get("optim.base_batch")
    free = (*SCALE_KEYS, "seed", "framework", *(() if is_scaled else ("optim.lr",)))  # the first two: compared before
    keys = sorted(key for key in {**old, **new} if key not in free)
    return [f"{key}: {old.get(key)} and {new.get(key)}" for key in keys if old.get(key) != new.get(key)]
