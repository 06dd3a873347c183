"""Runs: what was measured, and in which case. Read from the journals of train.py."""

import json
import math
import os
import re
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.logs import journal
from zoo.logs.journal import Event, first, named
from zoo.logs.lines import end_text

COMPLETE = "complete"
ENDED = "ended"
INCOMPLETE = "incomplete"
DAMAGED = "damaged"
MIXED = "mixed"
COUNTED = (COMPLETE, ENDED)  # whose results count
SPEED, INTERVALS = "timed updates", "training time"  # how the throughput was counted, without evaluations
MATRIX = "matrix.json"  # file that identifies a benchmark matrix
ATTEMPTS = "benchmark.jsonl"  # its journal of attempts
JOULES_PER_WH = 3600
MATRIX_DEPTH = 5  # of a run below its variant: framework, model, bz<batch>, <N>n<G>g, run
# Fields of the events `begin` and `resume`. Those of METHOD decide what is measured: results from before and after a
# resume that changed one belong to no case.
METHOD = ("framework", "device", "precision", "compute", "level", "channels_last", "compile", "loss_scale", "optimizer",
          "ranks", "batch", "accumulate", "global_batch")  # fmt: skip
OTHERS = ("loader", "workers", "threads", "seed", "recipe_sha256")


class Case(NamedTuple):
    """Settings that the repeats of a measurement share; None where one is not known."""

    model: str | None = None
    recipe: str | None = None
    variant: str | None = None  # of the code, in a matrix that compares several
    framework: str | None = None
    precision: str | None = None  # `fp32`, or with 16 bits the recipe's word, the type and the level: `amp (fp16 O1)`
    batch: int | None = None  # samples per card and micro-batch
    accumulate: int | None = None  # micro-batches per update
    # nodes, cards: number of hosts, and of all processes, one per card
    nodes: int | None = None
    cards: int | None = None
    device: str | None = None  # name of the accelerator or of the processor
    counting: str | None = None  # how the throughput was counted

    @property
    def global_batch(self) -> int | None:
        """Samples per update."""
        return self.batch * self.cards * (self.accumulate or 1) if self.batch and self.cards else None


class Point(NamedTuple):
    samples: float | None  # trained on so far; None if not known
    seconds: float | None  # since the run began, stops of a resumed run included
    value: float  # loss, or main metric as a fraction


class Values(NamedTuple):
    """Measurements of a run; None for one that it lacks."""

    samples_per_s: float | None = None  # throughput, counted as the case says
    avg_ips: float | None = None  # throughput of the whole run by the definition of AI-Rank, evaluations included
    # p50, p90, p99: quantiles of the time of an update in milliseconds
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    step_ms: tuple[float, ...] = ()  # that of every update of a speed run
    data_wait: float | None = None  # share of the time spent waiting for data
    # device_memory, host_memory: peaks in bytes, of the fullest device and of all processes of the run
    device_memory: float | None = None
    host_memory: float | None = None
    # joules_per_sample, watts, wh: energy and mean power of all devices; wh: of the whole training
    joules_per_sample: float | None = None
    wh: float | None = None
    watts: float | None = None
    best: float | None = None  # highest main metric of any evaluation, a fraction
    # seconds from the beginning to the evaluation that reached the target, at target_epoch
    time_to_target: float | None = None
    target_epoch: float | None = None
    total_time: float | None = None  # seconds from the beginning to the end
    evaluations: int = 0  # their number


class Run(NamedTuple):
    path: str  # folder of the run, or file of the log
    state: str  # COMPLETE; ENDED before the last step of its recipe, as it was asked to; INCOMPLETE; DAMAGED; or MIXED:
    # complete, its method changed by a resume
    remark: str  # how far it came, or what a resume changed; empty for a complete run
    case: Case = Case()
    values: Values = Values()
    metric: str | None = None  # name of the main metric
    target: float | None = None  # its target, a fraction
    protocol: str | None = None  # id of the way of sampling and evaluating
    checksum: str | None = None
    compute: str | None = None  # type of the numbers: fp32, fp16, bf16 or fp64
    tf32: bool = True  # whether fp32 may be computed in TF32
    flops_per_sample: float | None = None  # of a forward pass
    facts: Mapping[str, Any] = MappingProxyType({})  # what was recorded of versions, commit and machine
    settings: Mapping[str, Any] = MappingProxyType({})  # beside its case, as they were at its begin
    changed: Sequence[str] = ()  # names of the settings that resumes changed
    losses: Sequence[Point] = ()  # training loss
    metrics: Sequence[Point] = ()  # main metric of each evaluation
    steps: int | None = None  # updates done
    began: float | None = None  # when, in Unix seconds


def find(folder: str) -> list[str]:
    """Return the folders of runs at or below a folder, in the order of their names."""
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort(key=natural)
        if journal.FILE in files:
            found.append(path)
            folders.clear()  # a run has checkpoints below it, no runs
    return found


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts bz4 before bz16."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def read(folder: str) -> Run:
    try:
        with parsing(f"{journal.FILE} is damaged"):
            return _read(folder)
    except UserError as error:
        return Run(folder, DAMAGED, str(error))


def _read(folder: str) -> Run:
    events = journal.history(folder)
    begin = first(events, "begin") or {}
    target, hosts = begin.get("target"), begin.get("hosts") or []
    values, counting = measure(events, target, begin.get("warmup_epochs") or 0)
    changed = changes(begin, named(events, "resume"))
    state, remark = _state(events, changed)
    return Run(
        path=folder,
        state=state,
        remark=remark,
        case=Case(
            precision=_precision(begin),
            variant=_variant(folder),
            nodes=len(hosts) or None,
            cards=begin.get("ranks"),
            device=_device(begin, hosts),
            counting=counting,
            **{key: begin.get(key) for key in ("model", "recipe", "framework", "batch", "accumulate")},
        ),
        values=values,
        target=target,
        tf32=_may_use_tf32(begin, hosts),
        facts=_facts(begin, hosts) | ({"busy": True} if _was_busy(folder) else {}),
        settings=settings_of(begin),
        changed=changed,
        losses=points(events, "train", "loss"),
        metrics=points(events, "eval", "accuracy"),
        steps=max((event["step"] for event in events if event.get("step") is not None), default=None),
        began=begin.get("time"),
        **{key: begin.get(key) for key in ("metric", "protocol", "checksum", "compute", "flops_per_sample")},
    )


def _variant(folder: str) -> str | None:
    """Return the variant of a run in a matrix: the folder above the framework's; None without."""
    path = Path(os.path.abspath(folder))
    root = path.parents[MATRIX_DEPTH] if len(path.parents) > MATRIX_DEPTH else path
    return path.relative_to(root).parts[0] if (root / MATRIX).is_file() else None


def _was_busy(folder: str) -> bool:
    """Return whether others used the machine before a run of a matrix began."""
    path = Path(os.path.abspath(folder))
    root = next((parent for parent in path.parents[: MATRIX_DEPTH + 1] if (parent / ATTEMPTS).is_file()), None)
    own = [entry for entry in attempts(root) if entry.get("folder") == str(path.relative_to(root))] if root else []
    return bool(own and own[-1].get("busy"))


def attempts(matrix: Path) -> list[dict[str, Any]]:
    """Return the attempts of a matrix, without a line that a kill has truncated."""
    found, path = [], matrix / ATTEMPTS
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _may_use_tf32(begin: Event, hosts: Sequence[Any]) -> bool:
    """Return whether fp32 may have been computed in TF32: as the framework's settings say, by default where none do."""
    if any(field(host, "environment", "NVIDIA_TF32_OVERRIDE") == "0" for host in hosts):
        return False
    recorded = begin.get("arithmetic") or {}
    found = [value not in (False, None, "0") for name, value in recorded.items() if "tf32" in name.lower()]
    return any(found) if found else True


def _precision(begin: Event) -> str | None:
    precision, compute, level = (begin.get(key) for key in ("precision", "compute", "level"))
    if compute not in ("fp16", "bf16"):
        return precision or compute
    details = " ".join(word for word in (compute if precision != compute else None, level) if word)
    return f"{precision or 'amp'} ({details})" if details else precision


def _device(begin: Event, hosts: Sequence[Any]) -> str | None:
    """Return the name of the accelerators, or of the processor; several names are joined."""
    accelerators = [one.get("name") for host in hosts for one in host.get("accelerators") or ()]
    known = sorted({name for name in accelerators or [host.get("cpu") for host in hosts] if name})
    if known:
        return " + ".join(known)
    device = begin.get("device") or ""
    inside = re.fullmatch(r"\w+(?::\d+)? \((.*)\)", device)  # cuda:0 (Tesla V100-SXM2-16GB)
    return inside[1] if inside and not device.startswith("cpu") else device or None


def _facts(begin: Event, hosts: Sequence[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {key: begin.get(key) for key in ("framework_version", "device", "data")}
    for key in ("name", "os", "cpu", "driver"):
        facts[f"host_{key}"] = ", ".join(sorted({host[key] for host in hosts if host.get(key)}))
    for key in ("cuda", "cudnn", "nccl", "cann"):
        facts[key] = field(hosts[0], "libraries", key) if hosts else None
    commit = field(begin, "git", "commit")
    facts["commit"] = commit and commit[:12] + (" with changes" if begin["git"].get("dirty") else "")
    facts["accelerators"] = sum(len(host.get("accelerators") or ()) for host in hosts)
    facts["on_accelerator"] = facts["accelerators"] or not (facts["device"] or "cpu").startswith("cpu")
    return {key: value for key, value in facts.items() if value}


def _state(events: Sequence[Event], changed: Sequence[str]) -> tuple[str, str]:
    begin, end = first(events, "begin"), first(events, "end")
    if end:
        if method := [name for name in changed if name in METHOD]:
            return MIXED, f"resumed with another {', '.join(method)}"
        is_short = end.get("reason", "steps") != "steps" and not field(begin, "speed")
        return (ENDED, end_text(end, begin["steps"]).partition("ended ")[2]) if begin and is_short else (COMPLETE, "")
    if begin is None:
        return INCOMPLETE, "it has not begun"
    steps = [event["step"] for event in events if event.get("step") is not None]
    planned = f" of {begin['steps']}" if begin.get("steps") else ""
    return INCOMPLETE, f"step {max(steps, default=0)}{planned}"


def settings_of(event: Event) -> dict[str, Any]:
    """Return the settings beside its case that an event, `begin` or `resume`, records; unknown ones are left out."""
    found = {name: event[name] for name in (*METHOD, *OTHERS) if event.get(name) is not None}
    if "device" in found:
        # cuda:0 and cuda:1 are alike, and so are any threads of a processor.
        found["device"] = re.sub(r"^cpu \(.*\)$|^(\w+):\d+", lambda match: match[1] or "cpu", found["device"])
    return found


def differing(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that are not the same in all; an unknown value is not another one."""
    names = dict.fromkeys(name for settings in several for name in settings)
    values = {name: [settings[name] for settings in several if name in settings] for name in names}
    return [name for name, found in values.items() if any(value != found[0] for value in found)]


def changes(begin: Event, resumes: Sequence[Event]) -> list[str]:
    """Return the names of the settings that a resume changed; those that it does not record are as they were."""
    then = settings_of(begin)
    return list(dict.fromkeys(name for resume in resumes for name in differing([then, settings_of(resume)])))


class Interval(NamedTuple):
    """The updates between two `train` events, the second of which is `event`; seconds of training alone."""

    event: Event
    samples: float
    seconds: float


def measure(events: Sequence[Event], target: float | None, warmup_epochs: float) -> tuple[Values, str | None]:
    """Measure a run by the events of its journal; return the values, and how the throughput was counted."""
    trained, speed = intervals(events), first(events, "speed")
    seconds, samples = sum(i.seconds for i in trained), sum(i.samples for i in trained)
    spent = [joules for event in named(events, "train") if (joules := field(event, "power", "energy_j"))]
    energies = [(joules, i.samples) for i in trained if (joules := field(i.event, "power", "energy_j"))]
    timed = field(speed, "samples_per_s") or None
    counting = SPEED if timed else INTERVALS if seconds else None
    values = Values(
        samples_per_s=timed or (samples / seconds if seconds else None),
        avg_ips=avg_ips(events, warmup_epochs),
        data_wait=field(speed, "data_wait_fraction") if speed else _mean(trained, "data_wait_fraction"),
        device_memory=_largest(events, "device_memory_bytes"),
        host_memory=_largest(events, "host_memory_bytes"),
        joules_per_sample=sum(j for j, _ in energies) / sum(n for _, n in energies) if energies else None,
        wh=sum(spent) / JOULES_PER_WH if spent else None,
        watts=_mean(trained, "power", "watts"),
    )
    return values._replace(**_step_times(speed, trained), **_accuracies(events, target)), counting


def intervals(events: Sequence[Event]) -> list[Interval]:
    """Return the intervals of training whose throughput is known.

    The first of each process, which compiles, allocates and fills queues, is left out if it has more.
    """
    found: list[list[Interval]] = [[]]
    batch, last = 0, 0
    for event in events:
        batch, step = event.get("global_batch") or batch, event.get("step")
        if event["event"] == "resume":
            found.append([])
        elif event["event"] == "train" and step is not None:
            speed, samples = event.get("samples_per_s"), (step - last) * batch
            if speed and samples > 0:
                found[-1].append(Interval(event, samples, samples / speed))
        if event["event"] in ("resume", "train") and step is not None:
            last = step
    return [interval for process in found for interval in (process[1:] if len(process) > 1 else process)]


def avg_ips(events: Sequence[Event], warmup_epochs: float) -> float | None:
    """Compute the throughput of a whole run by the definition of AI-Rank; one that has not ended has none.

    The epochs that are left out end with the last evaluation within warmup_epochs.
    """
    start, epochs = field(first(events, "begin"), "time"), 0.0
    for event in named(events, "eval"):
        if event["epoch"] <= warmup_epochs:
            start, epochs = event["time"], event["epoch"]
    size, end = field(first(events, "load"), "train_samples"), first(events, "end")
    last, now = field(end, "epoch"), field(end, "time")
    if size is None or last is None or start is None or now <= start or last <= epochs:
        return None
    return (last - epochs) * size / (now - start)


def points(events: Sequence[Event], name: str, key: str) -> list[Point]:
    """Return the course of a field of the events of a name; unknown values are left out."""
    size = field(first(events, "load") or first(events, "begin"), "train_samples")
    start, found = field(first(events, "begin"), "time"), []
    for event in named(events, name):
        value, epoch = event.get(key), event.get("epoch")
        if value is not None and math.isfinite(value):
            samples = epoch * size if size and epoch is not None else None
            found.append(Point(samples, event["time"] - start if start is not None else None, value))
    return found


def _step_times(speed: Event | None, trained: Sequence[Interval]) -> dict[str, Any]:
    """Return the quantiles of a speed run's updates, or the medians of those of the intervals."""
    names = ("p50", "p90", "p99")
    every = tuple(field(speed, "step_ms", "all") or ())
    if every:
        return {f"p{q}": float(np.percentile(every, q)) for q in (50, 90, 99)} | {"step_ms": every}
    sources = [speed] if speed else [interval.event for interval in trained]
    known = {name: [value for one in sources if (value := field(one, "step_ms", name)) is not None] for name in names}
    return {name: statistics.median(values) if values else None for name, values in known.items()}


def _mean(trained: Sequence[Interval], *keys: str) -> float | None:
    known = [(value, i.seconds) for i in trained if (value := field(i.event, *keys)) is not None]
    seconds = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / seconds if seconds else None


def _largest(events: Sequence[Event], key: str) -> float | None:
    return max((event[key] for event in events if event.get(key)), default=None)


def _accuracies(events: Sequence[Event], target: float | None) -> dict[str, Any]:
    evals = [event for event in named(events, "eval") if math.isfinite(event["accuracy"])]
    reached = next((event for event in evals if target is not None and event["accuracy"] >= target), None)
    start, reached_at, end = (field(event, "time") for event in (first(events, "begin"), reached, first(events, "end")))
    return {
        "best": max((event["accuracy"] for event in evals), default=None),
        "time_to_target": reached_at - start if reached_at is not None and start is not None else None,
        "target_epoch": field(reached, "epoch"),
        "total_time": end - start if end is not None and start is not None else None,
        "evaluations": len(evals),
    }


def field(event: Any, *keys: str) -> Any:
    """Return a field of nested dictionaries; None where it, or a dictionary above it, is missing."""
    for key in keys:
        event = None if event is None else event.get(key)
    return event
