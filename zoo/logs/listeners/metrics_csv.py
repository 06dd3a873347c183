"""Numbers of a run as <run>/metrics.csv, for a spreadsheet: a row per `train` and `eval` event."""

import os

from zoo.config.schema import Config
from zoo.data import durable
from zoo.logs.journal import Event, Listener, history
from zoo.table import csv_text

FILE = "metrics.csv"


class Table:
    """Journal listener that writes the table anew at every evaluation, without what a resume has reverted."""

    def __init__(self, folder: str):
        """Write the table of the events so far, if any: a kill may have come between the last one and its row."""
        self.folder = folder
        self._write()

    def __call__(self, event: Event) -> None:
        if event["event"] in ("eval", "end"):
            self._write()

    def close(self) -> None:
        """Do nothing: no file stays open between events."""

    def _write(self) -> None:
        rows = [entry for entry in history(self.folder) if entry["event"] in ("train", "eval")]
        if not rows:
            return
        names = list(
            dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, int | float))
        )
        path = os.path.join(self.folder, FILE)
        durable.replace(path, csv_text(rows, ["event", *names]).encode(), f"{path}.writing")


def open_listener(folder: str, config: Config) -> Listener:
    return Table(folder)
