"""MLPerf training log, a pure function of the events of a run: lines `:::MLLOG {json}`.

Form and keys: mlperf-logging (github.com/mlcommons/logging), ruleset 4.0.0. Accuracies are fractions and epochs count
from 1. The run stops at the evaluation that reaches the target; without a target, at its end. What is between two
evaluations is a block.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.logs.journal import Event, first

TOKEN = ":::MLLOG "
DIVISIONS = ("open", "closed")
STATUSES = ("research", "cloud", "onprem", "preview")
POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


class Submission(NamedTuple):
    org: str
    division: str = "open"  # or closed, for a run that keeps to the reference's hyperparameters
    status: str = "research"  # of STATUSES: how the machine can be had
    platform: str | None = None  # the machine; None for hosts x accelerators of the run


class Entry(NamedTuple):
    """A line: Unix time in seconds, POINT, START or END of an interval, key, value and metadata."""

    time: float
    kind: str
    key: str
    value: Any = None
    metadata: dict[str, Any] | None = None

    def __str__(self) -> str:
        entry = {
            "namespace": "",
            "time_ms": round(self.time * 1000),
            "event_type": self.kind,
            "key": self.key,
            "value": self.value,
            "metadata": self.metadata or {},
        }
        return TOKEN + json.dumps(entry, allow_nan=False)


def lines(events: Sequence[Event], submission: Submission) -> list[str]:
    """Return the lines of the log of a run, or of one so far."""
    begin = first(events, "begin")
    if begin is None:
        raise UserError("the run has not begun: there is no event `begin` in its journal")
    load = first(events, "load") or {"at": begin["time"]}
    try:
        entries = [*_set_up(load["at"], begin, submission), *_course(events, begin)]
    except KeyError as error:
        raise UserError(f"an event of the run has no {error}; train again with this version") from None
    return [str(entry) for entry in sorted(entries, key=lambda entry: entry.time)]  # stable


def platform(hosts: Sequence[dict[str, Any]]) -> str:
    """Return hosts x accelerators of a run: `4x8xTesla V100-SXM2-16GB`; of a CPU its name."""
    accelerators = hosts[0].get("accelerators") or []
    if accelerators:
        return f"{len(hosts)}x{len(accelerators)}x{accelerators[0]['name']}"
    return f"{len(hosts)}x{hosts[0].get('cpu') or 'CPU'}"


def _set_up(start: float, begin: Event, submission: Submission) -> Iterator[Entry]:
    """Yield the entries before the clock starts."""
    facts = {
        "submission_benchmark": begin["model"],
        "submission_org": submission.org,
        "submission_division": submission.division,
        "submission_status": submission.status,
        "submission_platform": submission.platform or platform(begin["hosts"]),
        "cache_clear": False,  # the caches of the operating system are left as they are
    }
    for key, value in facts.items():
        yield Entry(start, POINT, key, value)
    yield Entry(start, START, "init_start")
    for key, value in {**_sizes(begin), **_optimizer(begin)}.items():
        yield Entry(start, POINT, key, value)
    yield Entry(begin["time"], END, "init_stop")


def _sizes(begin: Event) -> dict[str, Any]:
    return {
        "seed": begin["seed"],
        "train_samples": begin["train_samples"],
        "eval_samples": begin["val_samples"],
        "global_batch_size": begin["global_batch"],
        "gradient_accumulation_steps": begin["accumulate"],
        "max_steps": begin["steps"],
        "weights_initialization": begin["weights"],
        "lowest_numerical_precision_in_linear": begin["compute"],
        "target_accuracy": begin["target"],
    }


def _optimizer(begin: Event) -> dict[str, Any]:
    """Return the keys of the optimizer and of its learning rates, which are those of the run's global batch."""
    optim = begin["optimizer"]
    name, peak, scale = optim["name"], optim["peak_lr"], optim["peak_lr"] / optim["lr"] if optim["lr"] else 0.0
    values = {
        "opt_name": name,
        f"{name}_opt_base_learning_rate": peak,
        f"{name}_opt_end_learning_rate": optim["min_lr"] * scale,
        f"{name}_opt_weight_decay": optim["weight_decay"],
        "opt_learning_rate_decay_schedule": optim["schedule"],
        "opt_learning_rate_warmup_epochs": optim["warmup_steps"] * begin["global_batch"] / begin["train_samples"],
        "opt_learning_rate_warmup_steps": optim["warmup_steps"],
    }
    if "momentum" in optim:
        values[f"{name}_opt_momentum"] = optim["momentum"]
    if optim["schedule"] == "poly":
        values[f"{name}_opt_learning_rate_decay_poly_power"] = optim["power"]
        values[f"{name}_opt_learning_rate_decay_steps"] = begin["steps"] - optim["warmup_steps"]
    if optim["schedule"] == "step":
        values[f"opt_learning_rate_decay_boundary_{optim['milestone_unit']}"] = optim["milestones"]
        values["opt_learning_rate_decay_factor"] = optim["gamma"]
    if optim["clip_norm"] is not None:
        values["opt_gradient_clip_norm"] = optim["clip_norm"]
    return values


def _course(events: Sequence[Event], begin: Event) -> Iterator[Entry]:
    """Yield the entries from the start of the clock on, up to the one that stops it if there is one."""
    before, since = 0.0, begin["time"]
    yield Entry(since, START, "run_start")
    for event in events:
        name, now = event["event"], event["time"]
        if name == "resume":
            yield Entry(now, POINT, "resumed", event["step"])
        if name not in ("eval", "end"):
            continue
        stop = now - (event.get("seconds") or 0.0)
        if event["epoch"] > before:
            yield from _block(begin, event, before, since, stop)
        samples = round(event["epoch"] * begin["train_samples"])
        progress = {"epoch_num": _number(event["epoch"]), "samples_count": samples, "step_num": event["step"]}
        is_reached = False
        if name == "eval":
            yield Entry(stop, START, "eval_start", None, progress)
            accuracy = event["accuracy"] if math.isfinite(event["accuracy"]) else None
            yield Entry(now, POINT, "eval_accuracy", accuracy, progress)
            yield Entry(now, END, "eval_stop", None, progress)
            is_reached = begin["target"] is not None and event["accuracy"] >= begin["target"]
        if is_reached or name == "end":
            status = "success" if is_reached or begin["target"] is None else "aborted"
            yield Entry(now, END, "run_stop", None, {"status": status, **progress})
            return
        before, since = event["epoch"], now


def _block(begin: Event, event: Event, before: float, since: float, stop: float) -> Iterator[Entry]:
    """Yield the entries of the training from one evaluation, which ended at `since`, to the next."""
    first = {"first_epoch_num": math.floor(before) + 1}
    epochs = event["epoch"] - before
    speed = epochs * begin["train_samples"] / max(stop - since, 1e-9)
    yield Entry(since, START, "block_start", None, {**first, "epoch_count": _number(epochs)})
    yield Entry(stop, POINT, "tracked_stats", {"throughput": speed}, {"step": event["step"]})
    yield Entry(stop, END, "block_stop", None, first)


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
