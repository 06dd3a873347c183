"""Progress of a preparation: a bar on a terminal, a line per minute elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_INTERVAL = 60  # seconds


class Progress:
    """Progress bar; use as a context manager.

    Args:
        total: Number of samples.
        before: Number of samples done by earlier runs.
    """

    def __init__(self, total: int, before: int):
        self.total, self.before = total, before
        self._console = Console(highlight=False, soft_wrap=True)
        columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("checking", total=total, completed=before)
        self._printed = self._started = time.monotonic()

    def __enter__(self) -> "Progress":
        if self.before:
            self._console.print(f"going on after {self.before:,} of {self.total:,} samples")
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, done: int, bad: int) -> None:
        """Show the numbers of samples done and unreadable in this run."""
        note = f"checking ({bad:,} unreadable)" if bad else "checking"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self.before + done, description=note)
            return
        now = time.monotonic()
        if now - self._printed > LINE_INTERVAL:
            self._printed = now
            rate = done / (now - self._started)
            left = f", {(self.total - self.before - done) / rate / 60:,.0f} minutes left" if done else ""
            self._console.print(f"{note}: {self.before + done:,} of {self.total:,}, {rate:,.1f}/s{left}")
