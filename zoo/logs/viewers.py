"""Viewers of a run: journal listeners that also show images and histograms, which the journal does not hold."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from zoo.logs.journal import Event, Listener

SHOWN_EVENTS = ("train", "eval")  # whose numbers are curves


class Histogram(NamedTuple):
    """Distribution of the elements of a tensor: counts (B,) between edges (B + 1,)."""

    counts: np.ndarray
    edges: np.ndarray


class Viewer(Listener, Protocol):
    """A listener that shows images and histograms."""

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        """Show what belongs to the last event `eval`.

        Args:
            step: of the evaluation.
            images: uint8 RGB (H, W, 3) by name, such as images/samples.
            histograms: by name, such as weights/conv1.weight.
        """


def numbers(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event of SHOWN_EVENTS by name, such as train/loss and train/step_ms/p50."""
    values = {name: value for name, value in event.items() if name not in ("event", "time", "step")}
    return _flatten(event["event"], values)


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}/{key}", value)
        elif isinstance(value, (int, float)):
            yield f"{prefix}/{key}", value
