"""Viewers of a run: journal listeners that also show images and histograms, which the journal does not hold.

zoo/logs/tensorboard.py and zoo/logs/trackers.py have them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from zoo.data.errors import printable
from zoo.logs.journal import Event, Listener

# Events whose numbers are curves, and their groups, which viewers sort by name: training first, then validation.
GROUPS = {"train": "train", "eval": "val"}
CURVES = ("loss", "lr", "grad_norm")  # of training; its other numbers are in the group train_system


class Histogram(NamedTuple):
    """Distribution of the elements of a tensor: counts (B,) between edges (B + 1,)."""

    counts: np.ndarray
    edges: np.ndarray


class Viewer(Listener, Protocol):
    """A listener that shows images and histograms."""

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        """Show images, uint8 RGB (H, W, 3), and histograms of the last event `eval`, both by name."""


def numbers(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event of GROUPS by name, such as train/loss and, of a dictionary, train_step_ms/p50."""
    group = GROUPS[event["event"]]
    for name, value in event.items():
        if isinstance(value, dict):
            yield from _flatten(f"{group}_{name}", value)
        elif name not in ("event", "time", "step"):
            is_curve = group != "train" or name in CURVES
            yield from _flatten(group if is_curve else f"{group}_system", {name: value})


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}/{key}", value)
        elif isinstance(value, (int, float)):
            yield printable(f"{prefix}/{key}"), value
