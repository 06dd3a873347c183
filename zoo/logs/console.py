"""Console output of a run: a line per epoch or evaluation, with --verbose per event; a bar on a terminal."""

import os
import statistics
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, TextIO, TypeVar

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from zoo.data.errors import printable
from zoo.logs.journal import Event, best_evaluation
from zoo.logs.lines import FEW, TOP5_CLASSES, duration, end_lines, loss_text, run_lines, share_text, short
from zoo.table import wrapped

Item = TypeVar("Item")
WIDTH = 100  # columns of a line of training
BAR_DELAY = 2.0  # seconds after which an evaluation or a checkpoint has a bar of its own
SILENCE = 60.0  # seconds without a line, after which a log interval has one where no bar shows that the run goes on


class Console:
    """Journal listener that prints events, with `verbose` all. epochs: of the recipe; None if it counts updates."""

    def __init__(
        self,
        steps: int,
        out: TextIO | None = None,
        *,
        epochs: float | None = None,
        metric: str = "accuracy",
        verbose: bool = False,
    ):
        self.steps = steps
        self.epochs = epochs
        self.metric = metric
        self.verbose = verbose
        self.rich = RichConsole(file=out or sys.stdout, highlight=False, soft_wrap=True)
        self._width = self.rich.width if self.rich.is_terminal or os.environ.get("COLUMNS") else None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self.rich,
            transient=True,
        )
        self.task = self.bar.add_task("training", total=steps, rate="", visible=False)
        self._first: tuple[int, float] | None = None  # update and monotonic time at the end of this process's first one
        self._scaling: tuple[float, float] = (1.0, 0.0)  # loss scale and skipped updates of the last line
        self._classes = TOP5_CLASSES  # of the data
        self._intervals: list[tuple[float, float]] = []  # loss and samples/s of those since the last line
        self._epoch = 0  # of the last line
        self._line = ""  # that waits for the evaluation of its step, or for whether that is the best
        self._printed = time.monotonic()
        self._handlers = {
            "train": self._train,
            "data_wait": self._data_wait,
            "eval": self._eval,
            "bad": self._bad,
            "best": self._best,
            "resume": self._resume,
            "speed": self._speed,
            "end": self._end,
            "profile": self._profile,
            **({"save": self._save} if verbose else {}),
        }

    def tick(self, done: int) -> None:
        """Move the progress bar to `done` updates."""
        self._flush()  # no evaluation has followed
        if self._first is None:
            self._first = done, time.monotonic()  # the first update compiles and allocates, and is no measure
        if self.rich.is_terminal:
            self.bar.start()
            self.bar.update(self.task, completed=done, visible=True)

    @contextmanager
    def activity(self, name: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Show a bar on a terminal for what takes more than BAR_DELAY seconds; yield a function that counts a part."""
        if not self.rich.is_terminal:
            yield lambda: None
            return
        task = self.bar.add_task(name, total=total, rate="", visible=False)

        def show() -> None:
            self.bar.start()
            self.bar.update(task, visible=True)

        timer = threading.Timer(BAR_DELAY, show)
        timer.daemon = True
        timer.start()
        try:
            yield lambda: self.bar.advance(task)
        finally:
            timer.cancel()
            timer.join()  # it may be showing the bar just now
            self.bar.remove_task(task)
            if self._first is None:  # no bar of training follows, or not yet
                self.bar.stop()

    def track(self, items: Generator[Item, None, None], name: str, total: int) -> Generator[Item, None, None]:
        """Yield what a generator does, counted in a bar as `activity` has it."""
        with closing(items), self.activity(name, total) as advance:
            for item in items:
                yield item
                advance()

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(event["event"])
        if handler:
            handler(event)

    def describe(self, metadata: Mapping[str, Any], changed: Sequence[str], notes: Sequence[str]) -> None:
        """Print a summary of the run. metadata: of its event `begin`; changed: keys, each as `key: old -> new`."""
        self._classes = metadata["classes"]
        data, *others = run_lines(metadata)
        for line in (*(f"changed since the run began: {line}" for line in changed), data, *notes, *others):
            self.print(line)

    def summarize(self, events: Sequence[Event], folder: str) -> None:
        """Print a table of what a run has reached, where it is and what may follow; none without an evaluation."""
        best = best_evaluation(events)
        if best:
            count = self._count(best)
            at = f"{self._place(best)}{': ' * bool(count)}{count}"
            self.print(f"best        {self.metric} {best['accuracy']:.4f} at {at}", "bold")
            for line in end_lines(events, folder):
                self.print(line)

    def print(self, text: str, style: str = "") -> None:
        """Print a line above the progress bar; the style, as rich names it, is for a terminal."""
        self._flush()
        self._write(text, style)

    def _write(self, text: str, style: str = "") -> None:
        self.rich.print(wrapped(printable(text), self._width), markup=False, style=style)
        self._printed = time.monotonic()

    def _flush(self, style: str = "") -> None:
        if self._line:
            self._write(self._line, style)
            self._line = ""
            self._intervals.clear()

    def close(self) -> None:
        self._flush()
        if self.rich.is_terminal:  # elsewhere it would print an empty line
            self.bar.stop()

    def _train(self, event: Event) -> None:
        self._intervals.append((event["loss"], event["samples_per_s"]))
        rate = [
            f"{short(event['samples_per_s'], 4)}/s",
            f"wait {event['data_wait_fraction']:.0%}",
            f"ETA {self._eta(event['step'])}",
        ]
        self.bar.update(self.task, rate="  ".join(rate))
        if self.verbose:
            self._train_line(event, rate)
        elif self.epochs and event["epoch"] >= self._epoch + 1:
            self._line = self._progress(event)
        elif not self.rich.is_terminal and time.monotonic() - self._printed >= SILENCE:
            self._line = self._progress(event)
            self._flush()

    def _progress(self, event: Event) -> str:
        """Return the line on all intervals since the last one."""
        parts = [self._place(event, self.steps)]
        if self._intervals:
            loss, rate = (statistics.fmean(values) for values in zip(*self._intervals))
            parts += [loss_text(loss), f"{short(rate, 4)}/s"]
        if event["step"] < self.steps:
            parts.append(f"{self._eta(event['step'])} left")
        self._epoch = int(event["epoch"])
        return "  ".join(parts)

    def _place(self, event: Event, total: int | None = None) -> str:
        """Return the epoch of an event, or its step where the recipe counts updates; `total`: of all of them."""
        if not self.epochs:
            return f"step {event['step']}" + (f"/{total}" if total else "")
        text = f"{event['epoch']:.2f}".removesuffix(".00")
        return f"epoch {text:>{len(f'{self.epochs:g}')}}/{self.epochs:g}" if total else f"epoch {text}"

    def _train_line(self, event: Event, rate: Sequence[str]) -> None:
        scale, skipped = event["scale"], event["skipped"]
        last_scale, last_skipped = self._scaling
        changes = [f"loss scale {scale:g}"] * (scale != last_scale)
        changes += [f"{skipped:.0f} updates skipped so far (no finite gradient)"] * (skipped != last_skipped)
        if changes:
            self.print(f"step {event['step']}: {', '.join(changes)}")
            self._scaling = scale, skipped
        parts = [
            f"step {event['step']}/{self.steps}",
            f"epoch {event['epoch']:.2f}",
            loss_text(event["loss"]),
            f"lr {short(event['lr'], 3)}",
            f"grad {short(event['grad_norm'], 3)}",
            *rate,
        ]
        line = "  ".join(parts)
        self.print(line if len(line) <= (self._width or WIDTH) else " ".join(parts))

    def _data_wait(self, event: Event) -> None:
        self._write(event["message"], "yellow")

    def _eval(self, event: Event) -> None:
        unreadable = f"  ({event['bad']} unreadable, counted as wrong)" if event["bad"] else ""
        if "epoch" in event and not self.verbose:
            loss = f"  val {loss_text(event['loss'])}" if "loss" in event else ""
            self._line = f"{self._progress(event)}{loss}  {self.metric} {event['accuracy']:.4f}{unreadable}"
            return
        after = f" after epoch {event['epoch']:.2f}" if "epoch" in event else ""
        self.print(
            f"evaluation{after}: {self._metrics(event)}  over {event['samples']} samples "
            f"in {event['seconds']:.1f} s{unreadable}"
        )
        if count := self._count(event):
            self.print(f"  {self.metric}: {count}")
        for key, title in (("ema", "moving average"), ("train", "training samples")):
            if key in event:
                self.print(f"  {title}: {self._metrics(event[key])}")
        if "iou" in event:
            text = "IoU by class: " + ", ".join(f"{name} {value:.3f}" for name, value in event["iou"].items())
            for line in textwrap.wrap(
                text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            ):
                self.print(line)

    def _count(self, event: Event) -> str:
        """Return the number of samples behind a main metric that is a share of them; "" for others and of many."""
        return share_text(event["accuracy"], event.get("samples", FEW)) if self.metric == "top1" else ""

    def _metrics(self, event: Event) -> str:
        """Return the metrics of an event or a part of it; with few classes not the top-5 accuracy."""
        hidden = ["time", "epoch", "seconds", "accuracy", *["top5"] * (self._classes < TOP5_CLASSES)]
        return "  ".join(
            f"{name} {value:.4f}" for name, value in event.items() if isinstance(value, float) and name not in hidden
        )

    def _bad(self, event: Event) -> None:
        replacement = f"replaced by {event['replaced_by']}" if event["replaced_by"] else "counted as wrong"
        self._write(f"unreadable sample: {event['name']}: {event['reason']}; {replacement}", "yellow")

    def _save(self, event: Event) -> None:
        self.print(f"saved {event['path']}")

    def _best(self, event: Event) -> None:
        if self.verbose:
            self.print(f"best so far: {event['path']}")
        elif self._line:
            self._line += "  best"
            self._flush("green")

    def _resume(self, event: Event) -> None:
        self.print(f"resuming from step {event['step']} ({event['path'] or 'no checkpoint was written yet'})")

    def _speed(self, event: Event) -> None:
        self.print(
            f"speed: {event['samples_per_s']:.2f} samples/s over {event['count']} updates, after {event['drop']} that "
            f"were dropped; an update takes {event['step_ms']['p50']:.2f} ms (median), "
            f"waiting for data {event['data_wait_fraction']:.0%}"
        )

    def _profile(self, event: Event) -> None:
        self.print(f"profile of {event['updates']} updates, to step {event['step']}: {event['path']}")
        for line in event["table"]:
            self.print(line)

    def _end(self, event: Event) -> None:
        if event.get("message"):
            self.print(f"ended early: {event['message']}")

    def _eta(self, step: int) -> str:
        """Estimate the time left, evaluations included, from the updates of this process but the first."""
        if self._first is None or step <= self._first[0]:
            return "?"
        first_step, first_time = self._first
        return duration((time.monotonic() - first_time) / (step - first_step) * (self.steps - step))
