"""Lines about a run as a whole, and numbers in few characters."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.logs.journal import Event

TOP5_CLASSES = 6  # with fewer, the top-5 accuracy is 1 or nearly so, and not shown
FEW = 1000  # samples; of fewer, an accuracy is shown with its interval, which is wider than 0.06 at 0.5


def run_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return what a run is, by the fields of its event `begin`; the first line is about its data."""
    parameters = f"{metadata['parameters']:,} parameters, " if metadata["parameters"] else ""
    level = f" ({metadata['level']})" if metadata["level"] else ""
    mode, evaluated_in = metadata["compile"], metadata.get("eval_compute", metadata["compute"])
    evaluation = f", evaluating in {evaluated_in}," if evaluated_in != metadata["compute"] else ""
    compiled = f", compiled ({mode})" if isinstance(mode, str) else ", compiled" if mode else ""
    return [
        f"data: {metadata['train_samples']} training and {metadata['val_samples']} validation samples, "
        f"{metadata['classes']} classes, checksum {metadata['checksum']}",
        f"model: {parameters}the head has {metadata['outputs']} outputs "
        f"({metadata['classes']} classes in the data); weights: {metadata['weights']}",
        f"plan: {metadata['plan']}, {metadata['steps']} steps",
        f"computing in {metadata['compute']}{level}{evaluation} with {metadata['framework']}{compiled} on "
        f"{metadata['device']}",
    ]


def rank_lines(launcher: str, ranks: Sequence[Mapping[str, str]]) -> list[str]:
    """Return host, device and framework of every rank."""
    return [
        f"{len(ranks)} processes, started by {launcher}:",
        *(f"  rank {i:<4} {rank['host']:<20} {rank['device']:<30} {rank['framework']}" for i, rank in enumerate(ranks)),
    ]


def end_lines(events: Sequence[Event], folder: str) -> list[str]:
    """Return time, throughput and folder of a run that has ended, and commands that may follow.

    The time is that of all its processes, one after the other, without that between them.
    """
    starts = [index for index, event in enumerate(events) if event["event"] in ("begin", "resume")]
    ends = [*starts[1:], len(events)]
    seconds = sum(events[end - 1]["time"] - events[start]["time"] for start, end in zip(starts, ends))
    return [
        f"time        {duration(seconds)}",
        f"throughput  {throughput(events)}",
        f"folder      {folder}",
        f"next        zoo predict FILE --weights {folder}",
        f"            zoo report {folder} --html",
    ]


def end_text(end: Event, steps: int) -> str:
    """Return how far a run came that has ended."""
    reasons = {"max_steps": "--max-steps", "target": "the target is reached", "early_stopping": "no improvement"}
    if end["step"] >= steps:
        return f"is complete at step {end['step']}"
    reason = reasons.get(end.get("reason", ""), "its recipe is longer now")
    return f"has ended at step {end['step']} of {steps} ({reason})"


def share_text(value: float, samples: int) -> str:
    """Return the count behind a share of few samples, with its 95 % interval by Wilson's formula; "" of many."""
    if samples >= FEW or not 0 <= value <= 1:
        return ""
    z2 = 1.959964**2 / samples
    center, half = value + z2 / 2, math.sqrt(value * (1 - value) * z2 + z2**2 / 4)
    low, high = max(center - half, 0) / (1 + z2), (center + half) / (1 + z2)
    return f"{round(value * samples)} of {samples}, 95 % interval {low:.2f} to {high:.2f}"


def throughput(events: Sequence[Event]) -> str:
    """Return the median of the samples per second of the log intervals."""
    rates = [rate for event in events if event["event"] == "train" and (rate := event.get("samples_per_s"))]
    return f"{short(statistics.median(rates), 4)} samples/s" if rates else "-"


def loss_text(value: float) -> str:
    return f"loss {value:.4f}" if abs(value) < 100 else f"loss {short(value, 4)}"


def short(value: float, digits: int) -> str:
    """Return a number with so many significant digits in few characters: 0.0123, 12346, 1.23e-5."""
    if 10 ** (digits - 1) <= abs(value) < 10**5:
        return f"{value:.0f}"
    mantissa, exponent, power = f"{value:.{digits}g}".partition("e")
    return mantissa + (f"e{int(power)}" if exponent else "")


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 4m05s, 23h59m, 12d03h."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days:.0f}d{hours % 24:02.0f}h"
    if hours:
        return f"{hours:.0f}h{minutes % 60:02.0f}m"
    return f"{minutes:.0f}m{int(seconds) % 60:02d}s"
