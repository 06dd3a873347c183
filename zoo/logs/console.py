"""Console output of a run: a progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from zoo.logs.journal import Event


class Console:
    """Journal listener that prints events.

    Args:
        steps: Number of the last update.
        out: Stream to print to; default the standard output.
    """

    def __init__(self, steps: int, out: TextIO | None = None):
        self.steps = steps
        self.rich = RichConsole(file=out or sys.stdout, highlight=False, soft_wrap=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self.rich,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=steps, rate="")
        self._first_log: tuple[int, float] | None = None  # step and monotonic time of this process's first log line
        self._handlers = {
            "train": self._train,
            "data_wait": self._data_wait,
            "eval": self._eval,
            "bad": self._bad,
            "save": self._save,
            "best": self._best,
            "resume": self._resume,
            "speed": self._speed,
        }

    def tick(self, done: int) -> None:
        """Move the progress bar to `done` updates."""
        if self.rich.is_terminal:
            self.bar.start()
            self.bar.update(self.task, completed=done)

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(event["event"])
        if handler:
            handler(event)

    def describe(self, metadata: Mapping[str, Any], changed: Sequence[str], notes: Sequence[str]) -> None:
        """Print a summary of the run.

        Args:
            metadata: Fields of the event `begin`.
            changed: Keys of the recipe that a resumed run changes, as `key: old -> new`.
            notes: Remarks about the data set.
        """
        for line in changed:
            self.print(f"changed since the run began: {line}")
        self.print(
            f"data: {metadata['train_samples']} training and {metadata['val_samples']} validation samples, "
            f"{metadata['classes']} classes, checksum {metadata['checksum']}"
        )
        for line in notes:
            self.print(line)
        self.print(
            f"model: {metadata['parameters']:,} parameters, the head has {metadata['outputs']} outputs "
            f"({metadata['classes']} classes in the data); weights: {metadata['weights']}"
        )
        self.print(f"plan: {metadata['plan']}, {metadata['steps']} steps")
        level = f" ({metadata['level']})" if metadata["level"] else ""
        mode = metadata["compile"]
        compiled = f", compiled ({mode})" if isinstance(mode, str) else ", compiled" if mode else ""
        self.print(
            f"computing in {metadata['compute']}{level} with {metadata['framework']}{compiled} on {metadata['device']}"
        )

    def print_ranks(self, launcher: str, ranks: Sequence[Mapping[str, str]]) -> None:
        """Print host, device and framework of every rank."""
        self.print(f"{len(ranks)} processes, started by {launcher}:")
        for number, rank in enumerate(ranks):
            self.print(f"  rank {number:<4} {rank['host']:<20} {rank['device']:<30} {rank['framework']}")

    def print(self, text: str) -> None:
        """Print a line above the progress bar."""
        self.rich.print(text, markup=False)

    def close(self) -> None:
        if self.rich.is_terminal:  # elsewhere it would print an empty line
            self.bar.stop()

    def _train(self, event: Event) -> None:
        rate = (
            f"{event['samples_per_s']:.1f} samples/s, waiting for data {event['data_wait_fraction']:.0%}, "
            f"ETA {self._eta(event['step'])}"
        )
        self.bar.update(self.task, rate=rate)
        skipped = f"  skipped {event['skipped']:.0f}" if event["skipped"] else ""
        scale = f"  scale {event['scale']:g}" if event["scale"] != 1 else ""
        self.print(
            f"step {event['step']}/{self.steps}  epoch {event['epoch']:.2f}  loss {event['loss']:.4f}  "
            f"lr {event['lr']:.6g}  grad {event['grad_norm']:.3g}{scale}{skipped}  {rate}"
        )

    def _data_wait(self, event: Event) -> None:
        self.print(event["message"])

    def _eval(self, event: Event) -> None:
        unreadable = f"  ({event['bad']} unreadable, counted as wrong)" if event["bad"] else ""
        metrics = "  ".join(
            f"{name} {event[name]:.4f}"
            for name in event
            if isinstance(event[name], float) and name not in ("time", "epoch", "seconds", "accuracy")
        )
        after = f" after epoch {event['epoch']:g}" if "epoch" in event else ""
        self.print(
            f"evaluation{after}: {metrics}  over {event['samples']} samples in {event['seconds']:.1f} s{unreadable}"
        )
        if "iou" in event:
            self.print("IoU by class: " + ", ".join(f"{name} {value:.3f}" for name, value in event["iou"].items()))

    def _bad(self, event: Event) -> None:
        replacement = f"replaced by {event['replaced_by']}" if event["replaced_by"] else "counted as wrong"
        self.print(f"unreadable sample: {event['name']}: {event['reason']}; {replacement}")

    def _save(self, event: Event) -> None:
        self.print(f"saved {event['path']}")

    def _best(self, event: Event) -> None:
        self.print(f"best so far: {event['path']}")

    def _resume(self, event: Event) -> None:
        self.print(f"resuming from step {event['step']} ({event['path'] or 'no checkpoint was written yet'})")

    def _speed(self, event: Event) -> None:
        self.print(
            f"speed: {event['samples_per_s']:.2f} samples/s over {event['count']} updates, after {event['drop']} that "
            f"were dropped; an update takes {event['step_ms']['p50']:.2f} ms (median), "
            f"waiting for data {event['data_wait_fraction']:.0%}"
        )

    def _eta(self, step: int) -> str:
        """Estimate the time left, evaluations included, from the steps of this process; unknown at its first line."""
        now = time.monotonic()
        if self._first_log is None:
            self._first_log = step, now
            return "?"
        first_step, first_time = self._first_log
        seconds = int((now - first_time) / max(step - first_step, 1) * (self.steps - step))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
