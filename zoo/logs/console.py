"""Events for a person: a progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console as Rich
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn


class Console:
    """Listens to a journal. `tick` moves the bar between log lines."""

    def __init__(self, steps: int, out: TextIO | None = None):
        self.steps = steps
        out = out or sys.stdout
        self.rich = Rich(file=out, highlight=False, soft_wrap=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self.rich,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=steps, rate="")
        self._first = self._since = None

    def tick(self, done: int) -> None:
        if self.rich.is_terminal:
            self.bar.start()
            self.bar.update(self.task, completed=done)

    def __call__(self, event: Mapping[str, Any]) -> None:
        write = getattr(self, f"_{event['event']}", None)
        if write:
            write(event)

    def describe(self, facts: Mapping[str, Any], changed: Sequence[str], notes: Sequence[str]) -> None:
        """What is about to run, in a few lines; notes are about the data."""
        for line in changed:
            self.print(f"changed since the run began: {line}")
        self.print(
            f"data: {facts['train_samples']} training and {facts['val_samples']} validation samples, "
            f"{facts['classes']} classes, checksum {facts['checksum']}"
        )
        for line in notes:
            self.print(line)
        self.print(
            f"net: {facts['parameters']:,} parameters, the head has {facts['outputs']} outputs "
            f"({facts['classes']} classes in the data); weights: {facts['weights']}"
        )
        self.print(f"plan: {facts['plan']}, {facts['steps']} steps")
        level = f" ({facts['level']})" if facts["level"] else ""
        way = ", compiled" if facts["compile"] else ""
        self.print(f"computing in {facts['compute']}{level} with {facts['framework']}{way} on {facts['device']}")

    def print_ranks(self, launcher: str, rows: Sequence[Mapping[str, str]]) -> None:
        """Who takes part."""
        self.print(f"{len(rows)} processes, started by {launcher}:")
        for rank, row in enumerate(rows):
            self.print(f"  rank {rank:<4} {row['host']:<20} {row['device']:<30} {row['framework']}")

    def print(self, text: str) -> None:
        self.rich.print(text, markup=False)

    def close(self) -> None:
        if self.rich.is_terminal:  # elsewhere it would print an empty line
            self.bar.stop()

    def _train(self, event: Mapping[str, Any]) -> None:
        rate = (
            f"{event['samples_per_s']:.1f} samples/s, waiting for data {event['data_wait_fraction']:.0%}, "
            f"ETA {self._eta(event)}"
        )
        self.bar.update(self.task, rate=rate)
        skipped = f"  skipped {event['skipped']:.0f}" if event["skipped"] else ""
        scale = f"  scale {event['scale']:g}" if event["scale"] != 1 else ""
        self.print(
            f"step {event['step']}/{self.steps}  epoch {event['epoch']:.2f}  loss {event['loss']:.4f}  "
            f"lr {event['lr']:.6g}  grad {event['grad_norm']:.3g}{scale}{skipped}  {rate}"
        )

    def _eval(self, event: Mapping[str, Any]) -> None:
        bad = f"  ({event['bad']} unreadable, counted as wrong)" if event["bad"] else ""
        numbers = "  ".join(
            f"{name} {event[name]:.4f}"
            for name in event
            if isinstance(event[name], float) and name not in ("time", "epoch", "seconds", "accuracy")
        )
        after = f" after epoch {event['epoch']:g}" if "epoch" in event else ""
        self.print(f"evaluation{after}: {numbers}  over {event['samples']} samples in {event['seconds']:.1f} s{bad}")
        if "iou" in event:
            self.print("IoU by class: " + ", ".join(f"{name} {value:.3f}" for name, value in event["iou"].items()))

    def _bad(self, event: Mapping[str, Any]) -> None:
        instead = f"; {event['replaced_by']} takes its place" if event["replaced_by"] else "; counted as wrong"
        self.print(f"unreadable sample: {event['name']}: {event['reason']}{instead}")

    def _save(self, event: Mapping[str, Any]) -> None:
        self.print(f"saved {event['path']}")

    def _best(self, event: Mapping[str, Any]) -> None:
        self.print(f"best so far: {event['path']}")

    def _resume(self, event: Mapping[str, Any]) -> None:
        self.print(f"resuming from step {event['step']} ({event['path'] or 'no checkpoint was written yet'})")

    def _eta(self, event: Mapping[str, Any]) -> str:
        """From the steps of this process, evaluations and all; unknown at its first line."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._since = event["step"], now
            return "?"
        seconds = int((now - self._since) / max(event["step"] - self._first, 1) * (self.steps - event["step"]))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
