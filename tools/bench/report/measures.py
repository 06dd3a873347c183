"""Values of a run, measured from the events of its journal."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zoo.logs.journal import Event

SPEED, INTERVALS = "timed updates", "training time"  # how the throughput was counted, without evaluations
T = TypeVar("T")


class Point(NamedTuple):
    """A value in the course of a run.

    Attributes:
        samples: trained on so far; None if not known.
        seconds: since the run began, stops of a resumed run included.
        value: loss, or main metric as a fraction.
    """

    samples: float | None
    seconds: float | None
    value: float


class Values(NamedTuple):
    """What was measured in a run; None where nothing was.

    Attributes:
        samples_per_s: throughput, counted as the case says.
        avg_ips: throughput of the whole run by the definition of AI-Rank, evaluations included.
        p50, p90, p99: quantiles of the time of an update in milliseconds.
        step_ms: that of every update of a speed run.
        data_wait: share of the time spent waiting for data.
        device_memory, host_memory: peaks in bytes, of the fullest device and of all processes of the run.
        joules_per_sample, watts: energy and mean power of all devices.
        best: highest main metric of any evaluation, a fraction, measured at best_epoch.
        time_to_target: seconds from the beginning to the evaluation that reached the target, at target_epoch.
        total_time: seconds from the beginning to the end.
        evaluations: their number.
    """

    samples_per_s: float | None = None
    avg_ips: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    step_ms: tuple[float, ...] = ()
    data_wait: float | None = None
    device_memory: float | None = None
    host_memory: float | None = None
    joules_per_sample: float | None = None
    watts: float | None = None
    best: float | None = None
    best_epoch: float | None = None
    time_to_target: float | None = None
    target_epoch: float | None = None
    total_time: float | None = None
    evaluations: int = 0


class Interval(NamedTuple):
    """The updates between two `train` events, the second of which is `event`; seconds of training alone."""

    event: Event
    steps: float
    samples: float
    seconds: float


def measure(events: Sequence[Event], target: float | None, warmup_epochs: float) -> tuple[Values, str | None]:
    """Measure a run.

    Args:
        events: of its journal.
        target: of the main metric, a fraction.
        warmup_epochs: epochs that avg_ips leaves out.

    Returns:
        The values, and how the throughput was counted.
    """
    trained, speed = intervals(events), first(events, "speed")
    seconds, samples = sum(i.seconds for i in trained), sum(i.samples for i in trained)
    energies = [(joules, i.samples) for i in trained if (joules := number(i.event, "power", "energy_j"))]
    timed = number(speed, "samples_per_s") or None
    counting = SPEED if timed else INTERVALS if seconds else None
    values = Values(
        samples_per_s=timed or (samples / seconds if seconds else None),
        avg_ips=avg_ips(events, warmup_epochs),
        data_wait=number(speed, "data_wait_fraction") if speed else _mean(trained, "data_wait_fraction"),
        device_memory=_largest(events, "device_memory_bytes"),
        host_memory=_largest(events, "host_memory_bytes"),
        joules_per_sample=sum(j for j, _ in energies) / sum(n for _, n in energies) if energies else None,
        watts=_mean(trained, "power", "watts"),
    )
    return values._replace(**_step_times(speed, trained), **_accuracies(events, target)), counting


def intervals(events: Sequence[Event]) -> list[Interval]:
    """Return the intervals of training whose throughput is known.

    The first of each process, which compiles, allocates and fills queues, is left out if it has more.
    """
    found: list[list[Interval]] = [[]]
    batch, last = 0.0, 0.0
    for event in events:
        batch = number(event, "global_batch") or batch
        step = number(event, "step")
        if event["event"] == "resume":
            found.append([])
        elif event["event"] == "train" and step is not None:
            speed, samples = number(event, "samples_per_s"), (step - last) * batch
            if speed and samples > 0:
                found[-1].append(Interval(event, step - last, samples, samples / speed))
        if event["event"] in ("resume", "train") and step is not None:
            last = step
    return [interval for process in found for interval in (process[1:] if len(process) > 1 else process)]


def avg_ips(events: Sequence[Event], warmup_epochs: float) -> float | None:
    """Compute the throughput of a whole run by the definition of AI-Rank.

    Args:
        events: of a run that has ended; others have none.
        warmup_epochs: epochs that are left out; they end with the last evaluation within them.
    """
    start, epochs = number(first(events, "begin"), "time"), 0.0
    for event in named(events, "eval"):
        epoch, time = number(event, "epoch"), number(event, "time")
        if epoch is not None and time is not None and epoch <= warmup_epochs:
            start, epochs = time, epoch
    size, end = number(first(events, "load"), "train_samples"), first(events, "end")
    last, now = number(end, "epoch"), number(end, "time")
    if size is None or last is None or now is None or start is None or now <= start or last <= epochs:
        return None
    return (last - epochs) * size / (now - start)


def points(events: Sequence[Event], name: str, key: str) -> list[Point]:
    """Return the course of a field of the events of a name; values that are not finite are left out."""
    size = next((number(event, "train_samples") for event in events if event["event"] in ("load", "begin")), None)
    start, found = number(first(events, "begin"), "time"), []
    for event in named(events, name):
        value, epoch, time = number(event, key), number(event, "epoch"), number(event, "time")
        if value is not None:
            samples = epoch * size if size and epoch is not None else None
            found.append(Point(samples, time - start if time is not None and start is not None else None, value))
    return found


def _step_times(speed: Event | None, trained: Sequence[Interval]) -> dict[str, Any]:
    """Return the quantiles of a speed run's updates, or the medians of those of the intervals, weighted by updates."""
    every = tuple(map(float, get(speed, "step_ms", "all", to=list) or ()))
    if every:
        return {f"p{q}": float(np.percentile(every, q)) for q in (50, 90, 99)} | {"step_ms": every}
    names = ("p50", "p90", "p99")
    if speed:
        return {name: number(speed, "step_ms", name) for name in names}
    quantiles = {
        name: [(value, i.steps) for i in trained if (value := number(i.event, "step_ms", name))] for name in names
    }
    return {name: _weighted_median(values) for name, values in quantiles.items()}


def _weighted_median(values: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of (value, weight) pairs; None without any."""
    half, total = sum(weight for _, weight in values) / 2, 0.0
    for value, weight in sorted(values):
        total += weight
        if total >= half:
            return value
    return None


def _mean(trained: Sequence[Interval], *keys: str) -> float | None:
    """Return the mean over time of a field of the intervals."""
    known = [(value, i.seconds) for i in trained if (value := number(i.event, *keys)) is not None]
    seconds = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / seconds if seconds else None


def _largest(events: Sequence[Event], key: str) -> float | None:
    return max((value for event in events if (value := number(event, key))), default=None)


def _accuracies(events: Sequence[Event], target: float | None) -> dict[str, Any]:
    evals = [(value, event) for event in named(events, "eval") if (value := number(event, "accuracy")) is not None]
    best, at = max(evals, key=lambda pair: pair[0], default=(None, None))
    reached = next((event for value, event in evals if target is not None and value >= target), None)
    start = number(first(events, "begin"), "time")
    reached_at, end = number(reached, "time"), number(first(events, "end"), "time")
    return {
        "best": best,
        "best_epoch": number(at, "epoch"),
        "time_to_target": reached_at - start if reached_at is not None and start is not None else None,
        "target_epoch": number(reached, "epoch"),
        "total_time": end - start if end is not None and start is not None else None,
        "evaluations": len(evals),
    }


def get(event: Any, *keys: str, to: Callable[[Any], T]) -> T | None:
    """Return a field of nested dictionaries, converted; None where it, or a dictionary above it, is missing."""
    for key in keys:
        event = None if event is None else event.get(key)
    return None if event is None else to(event)


def number(event: Any, *keys: str) -> float | None:
    """Return a field as a float; None where it is missing or not finite."""
    value = get(event, *keys, to=float)
    return value if value is not None and math.isfinite(value) else None


def text(event: Any, *keys: str) -> str | None:
    """Return a field as a text on one line."""
    return get(event, *keys, to=lambda value: " ".join(str(value).split()) or None)


def whole(event: Any, *keys: str) -> int | None:
    """Return a field as a whole number of at least 1."""
    return get(event, *keys, to=lambda value: int(value) if int(value) >= 1 else None)


def named(events: Sequence[Event], name: str) -> list[Event]:
    """Return the events of a name."""
    return [event for event in events if event["event"] == name]


def first(events: Sequence[Event], name: str) -> Event | None:
    """Return the first event of a name."""
    return next((event for event in events if event["event"] == name), None)
