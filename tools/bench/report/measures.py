"""Values of a run, measured from the events of its journal."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.report.fields import finite_all, items, number, positive
from zoo.bench.report.run import Point, StepTimes, Values
from zoo.logs.journal import Event

SPEED, INTERVALS = "timed updates", "training time"  # how the throughput was counted, without evaluations


class Interval(NamedTuple):
    """The updates between two `train` events.

    Attributes:
        event: the one at its end.
        steps: number of updates.
        samples: trained on.
        seconds: of training, evaluations and saves left out.
    """

    event: Event
    steps: float
    samples: float
    seconds: float


def named(events: Sequence[Event], name: str) -> list[Event]:
    """Return the events of a name."""
    return [event for event in events if event["event"] == name]


def intervals(events: Sequence[Event]) -> list[Interval]:
    """Return the intervals of training whose throughput is known; the first of each process is left out if it has more.

    The first interval of a process compiles, allocates and fills queues.
    """
    found: list[list[Interval]] = [[]]
    batch, last = None, 0.0
    for event in events:
        batch = positive(event, "global_batch") or batch
        step = number(event, "step")
        if event["event"] == "resume":
            found.append([])
        elif event["event"] == "train" and step is not None:
            speed = positive(event, "samples_per_s")
            samples = (step - last) * (batch or 0)
            if speed and samples > 0:
                found[-1].append(Interval(event, step - last, samples, samples / speed))
        if event["event"] in ("resume", "train") and step is not None:
            last = step
    return [interval for process in found for interval in (process[1:] if len(process) > 1 else process)]


def measure(events: Sequence[Event], target: float | None, warmup_epochs: float) -> tuple[Values, str | None]:
    """Measure a run.

    Args:
        events: of its journal.
        target: of the main metric, a fraction.
        warmup_epochs: epochs that avg_ips leaves out.

    Returns:
        The values, and how the throughput was counted.
    """
    trained = intervals(events)
    seconds, samples = sum(i.seconds for i in trained), sum(i.samples for i in trained)
    speed = next(iter(named(events, "speed")), None)
    counting = SPEED if positive(speed, "samples_per_s") else INTERVALS if seconds else None
    throughput = positive(speed, "samples_per_s") or (samples / seconds if seconds else None)
    data_wait = number(speed, "data_wait_fraction") if speed else _mean(trained, "data_wait_fraction")
    return Values(
        samples_per_s=throughput,
        avg_ips=avg_ips(events, warmup_epochs),
        steps=_step_times(speed, trained),
        data_wait=data_wait,
        device_memory=_peak(events, "device_memory_bytes"),
        host_memory=_peak(events, "host_memory_bytes"),
        joules_per_sample=_joules_per_sample(trained),
        watts=_mean(trained, "power", "watts"),
    )._replace(**_accuracies(events, target)), counting


def begin_time(events: Sequence[Event]) -> float | None:
    """Return when the clock of a run started."""
    return next((number(event, "time") for event in named(events, "begin")), None)


def avg_ips(events: Sequence[Event], warmup_epochs: float) -> float | None:
    """Compute the throughput of a whole run by the definition of AI-Rank.

    Args:
        events: of a run that has ended; others have none.
        warmup_epochs: epochs that are left out; they end with the last evaluation within them.
    """
    load, end = (next(iter(named(events, name)), None) for name in ("load", "end"))
    start, epochs = begin_time(events), 0.0
    for event in named(events, "eval"):
        epoch, time = number(event, "epoch"), number(event, "time")
        if epoch is not None and time is not None and epoch <= warmup_epochs:
            start, epochs = time, epoch
    size, last, now = positive(load, "train_samples"), number(end, "epoch"), number(end, "time")
    if size is None or last is None or now is None or start is None or now <= start or last <= epochs:
        return None
    return (last - epochs) * size / (now - start)


def losses(events: Sequence[Event]) -> list[Point]:
    """Return the training losses, those that are no numbers left out."""
    return _points(events, "train", "loss")


def metrics(events: Sequence[Event]) -> list[Point]:
    """Return the main metric of the evaluations."""
    return _points(events, "eval", "accuracy")


def _points(events: Sequence[Event], name: str, key: str) -> list[Point]:
    size = next((positive(event, "train_samples") for event in events if event["event"] in ("load", "begin")), None)
    start, points = begin_time(events), []
    for event in named(events, name):
        value, epoch, time = number(event, key), number(event, "epoch"), number(event, "time")
        if value is not None:
            samples = epoch * size if size and epoch is not None else None
            points.append(Point(samples, time - start if time is not None and start is not None else None, value))
    return points


def _step_times(speed: Event | None, trained: Sequence[Interval]) -> StepTimes:
    """Return the quantiles of a speed run's updates, or the medians of those of the intervals, weighted by updates."""
    every = tuple(value for value in finite_all(items(speed, "step_ms", "all")) if value > 0)
    if every:
        p50, p90, p99 = (float(np.percentile(every, q)) for q in (50, 90, 99))
        return StepTimes(p50, p90, p99, every)
    quantile: Callable[[str], float | None] = (
        partial(positive, speed, "step_ms") if speed else partial(_quantile, trained)
    )
    return StepTimes(quantile("p50"), quantile("p90"), quantile("p99"))


def _quantile(trained: Sequence[Interval], name: str) -> float | None:
    """Return the median of a quantile of the intervals, weighted by their updates."""
    return _weighted_median([(value, i.steps) for i in trained if (value := positive(i.event, "step_ms", name))])


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


def _peak(events: Sequence[Event], key: str) -> float | None:
    return max((value for event in events if (value := positive(event, key))), default=None)


def _joules_per_sample(trained: Sequence[Interval]) -> float | None:
    """Return the energy of the intervals in which the devices told it, over their samples."""
    known = [(joules, i.samples) for i in trained if (joules := positive(i.event, "power", "energy_j"))]
    return sum(joules for joules, _ in known) / sum(samples for _, samples in known) if known else None


def _accuracies(events: Sequence[Event], target: float | None) -> dict[str, Any]:
    evals = [(value, event) for event in named(events, "eval") if (value := number(event, "accuracy")) is not None]
    best, at = max(evals, key=lambda pair: pair[0], default=(None, None))
    reached = next((event for value, event in evals if target is not None and value >= target), None)
    start, reached_at = begin_time(events), number(reached, "time")
    end = next((number(event, "time") for event in named(events, "end")), None)
    return {
        "best": best,
        "best_epoch": number(at, "epoch"),
        "time_to_target": reached_at - start if reached_at is not None and start is not None else None,
        "target_epoch": number(reached, "epoch"),
        "total_time": end - start if end is not None and start is not None else None,
        "evaluations": len(evals),
    }


def progress(events: Sequence[Event]) -> str:
    """Return how far a run came, in words."""
    begin = next(iter(named(events, "begin")), None)
    if begin is None:
        return "it has not begun"
    steps = [step for event in events if (step := number(event, "step")) is not None]
    planned = positive(begin, "steps")
    return f"step {max(steps, default=0):.0f}" + (f" of {planned:.0f}" if planned else "")
