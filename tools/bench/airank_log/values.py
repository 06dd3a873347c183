"""Values of an AI-Rank log: what it declares, and what its time stamps and counters give by the rules' definitions."""

from decimal import Decimal
from typing import Any, NamedTuple

from zoo.bench.airank_log.grammar import EVENTS, Event, Log


class Stretch(NamedTuple):
    """The part of a run that avg_ips counts.

    Attributes:
        epochs: done in it.
        seconds: that it took.
        rounding: largest error of `epochs` from the counters' decimals.
    """

    epochs: Decimal
    seconds: Decimal
    rounding: Decimal


def reached(log: Log, target: Decimal | None) -> Event | None:
    """Return the first evaluation at or above a target; log and target are fractions, or percent if above 1."""
    if not target:
        return None
    fraction = target / 100 if target > 1 else target
    threshold = fraction * (100 if log.percent else 1)
    return next((event for event in log.evals if event.value is not None and event.value >= threshold), None)


def stretch(log: Log, warmup: int) -> Stretch | None:
    """Return the part of a run from the end of its warm-up to test_finish, or else to the last evaluation.

    The warm-up ends with the last evaluation in it, or is left out where there is none.

    Args:
        log: the log.
        warmup: epochs to leave out.
    """
    evals = [(event, epochs) for event in log.evals if (epochs := log.epochs(event)) is not None]
    start, skipped, rounding = log.first("test_begin"), Decimal(0), Decimal(0)
    for event, epochs in evals:
        if epochs <= warmup:
            start, skipped, rounding = event, epochs, rounding_error(event.counter)
    if not evals or start is None:
        return None
    last, epochs = evals[-1]
    seconds = (log.first("test_finish") or last).time - start.time
    if seconds <= 0 or epochs <= skipped:
        return None
    return Stretch(epochs - skipped, seconds, rounding + rounding_error(last.counter))


def throughput(log: Log, samples: int | None, warmup: int) -> Decimal | None:
    """Compute avg_ips by its definition; None without what it needs.

    Args:
        log: the log.
        samples: training samples per epoch.
        warmup: epochs to leave out.
    """
    counted = stretch(log, warmup)
    return counted.epochs * samples / counted.seconds if samples and counted else None


def rounding_error(counter: Decimal | None) -> Decimal:
    """Return by how much a printed counter may differ from the real one: whole ones are exact."""
    return half_of_last_digit(counter) if counter is not None and counter % 1 else Decimal(0)


def half_of_last_digit(value: Decimal) -> Decimal:
    """Return by how much a printed value may differ from what was rounded to it."""
    return Decimal(1).scaleb(int(value.as_tuple().exponent)) / 2


def measure(log: Log, target: Decimal | None, samples: int | None = None, warmup: int = 0) -> dict[str, Any]:
    """Return the declared values of a log and those computed from its time stamps; None for missing ones."""
    begin, finish, reach = log.first("test_begin"), log.first("test_finish"), reached(log, target)
    counters = [str(event.counter) for event in log.evals if event.counter is not None]
    accuracies = [(event.value, event) for event in log.evals if event.value is not None]
    accuracy, best = max(accuracies, key=lambda pair: pair[0], default=(None, None))
    declared = {name: log.first(name) or Event(name, Decimal(0), 0) for name in EVENTS}
    values = {
        "kind": log.kind,
        "checksum": declared["load_data"].text,
        "evaluations": len(log.evals),
        "counters": f"{counters[0]}..{counters[-1]}" if counters else None,
        "accuracy_unit": best and ("percent" if log.percent else "fraction"),
        "best": accuracy,
        "best_counter": best and best.counter,
        "best_epoch": log.epochs(best),
        "target_quality_time": declared["target_quality_time"].value,
        "target_epoch": log.epochs(reach),
        "time_to_target": reach.time - begin.time if reach and begin else None,
        "total_use_time": declared["total_use_time"].value,
        "total_time": finish.time - begin.time if finish and begin else None,
        "avg_ips": declared["avg_ips"].value,
        "avg_ips_unit": declared["avg_ips"].text,
        "samples_per_s": throughput(log, samples, warmup),
    }
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in values.items()}
