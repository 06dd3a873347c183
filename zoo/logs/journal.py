"""What happened in a run, as events: dictionaries with `event`, `time` (Unix seconds) and fields of their own.

    load     at, checksum, train_samples                        begin   the facts of the run; starts the clock
    train    step, epoch, lr, loss, grad_norm, scale, skipped, samples_per_s, data_wait_fraction
    eval     step, epoch, accuracy (the main metric), the metrics, seconds
    bad      epoch, name, reason, replaced_by                   save    step, path
    best     step, path                                         resume  step
    end      step, epoch

events.jsonl is the truth, only ever appended to. Console, TensorBoard and airank.log are made from it.
"""

import json
import os
import time
from collections.abc import Sequence
from typing import Any, Protocol

Event = dict[str, Any]
FILE = "events.jsonl"


class Listener(Protocol):
    def __call__(self, event: Event) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Appends events to <run>/events.jsonl and hands them to listeners."""

    def __init__(self, run: str, listeners: Sequence[Listener]):
        path = os.path.join(run, FILE)
        self.listeners = listeners
        self.events = history(run)
        self._file = open(path, "a", encoding="utf-8")
        if self._file.tell() and not _ends_with_newline(path):
            self._file.write("\n")  # a kill cut the last line; keep it from eating the next

    def add(self, event: str, **values: Any) -> None:
        entry = {"event": event, "time": time.time(), **values}
        append(self.events, entry)
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        for listener in self.listeners:
            listener(entry)

    def has(self, kind: str) -> bool:
        return any(event["event"] == kind for event in self.events)

    def last(self, kind: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    def best(self) -> float | None:
        """The best accuracy so far."""
        return max((event["accuracy"] for event in self.events if event["event"] == "eval"), default=None)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()
        for listener in self.listeners:
            listener.close()


class NullJournal:
    """The journal of every rank but the first: notes nothing, knows nothing."""

    def add(self, event: str, **values: Any) -> None:
        pass

    def has(self, kind: str) -> bool:
        return False

    def last(self, kind: str) -> Event | None:
        return None

    def best(self) -> float | None:
        return None

    def __enter__(self) -> "NullJournal":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def history(run: str) -> list[Event]:
    """The events of a run that count: those that a resume took back are left out."""
    events: list[Event] = []
    path = os.path.join(run, FILE)
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # cut by a kill
                append(events, entry)
    return events


def append(events: list[Event], entry: Event) -> None:
    """Add one event in place. A resume from step k takes back what was reported after k, and every end."""
    if entry["event"] == "resume":
        events[:] = [old for old in events if old.get("step", 0) <= entry["step"] and old["event"] != "end"]
    events.append(entry)


def _ends_with_newline(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
