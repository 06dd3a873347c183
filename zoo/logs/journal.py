"""Journal of a run: events, which are dictionaries with `event`, `time` and fields of their own.

`time` is in Unix seconds and never decreases: the clock of the host when a process begins, or the last event if that
is later, and a monotonic clock from there on.

    load       at, checksum, train_samples
    begin      what the run is and where it runs (zoo/run/description.py, zoo/distributed/machine.py); starts the clock
    train      step, epoch, lr, loss, grad_norm, scale, skipped, consecutive_skips; samples_per_s (over all ranks),
               data_wait_fraction, step_ms and data_wait_ms (quantiles, zoo/logs/timing.py); host_memory_bytes,
               device_memory_bytes, power (zoo/logs/resources.py); profiled: how many updates, if any, were slowed
    profile    step, updates, path, table: train.profile (zoo/run/profiling.py)
    data_wait  step, cause, message, what was measured (zoo/logs/timing.py); when waiting for data begins to matter
    eval       step, epoch, accuracy (the main metric), all metrics, samples, seconds, bad; with train.ema also ema, the
               same metrics of the moving average, of which accuracy is one then
    bad        epoch, name, reason, replaced_by
    unreadable name, reason: samples because of which the run ends
    data_changed  first_step (updates done before), checksum, checksum_method, train_samples, val_samples, accepted
               (by --accept-changed-data), counts of items by split and kind, mended (items that were unreadable)
    save       step, path
    best       step, path
    resume     step, path, and what may differ from the run's begin: framework,
               precision, compilation, optimizer, device, batch, recipe, reading of data, machines, code
    speed      drop, count, samples, seconds, samples_per_s, step_ms, data_wait_fraction, flops_per_s: train.py --speed
    end        step, epoch, reason (steps, max_steps, target or early_stopping), message (of early stopping)

What is unknown is null, and so is a number that is not finite. docs/training.md describes the fields.

<run>/events.jsonl is append-only and the source of all other logs: console, TensorBoard and airank.log.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TextIO

from zoo.data import durable
from zoo.data.errors import Option, UserError, parsing
from zoo.data.formats import regular

Event = dict[str, Any]
FILE = "events.jsonl"


def is_number(value: Any) -> bool:
    """Return whether a value is a number that a float can hold, or NaN."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 1000)


def is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# The fields without which a run cannot go on: what its logs and its record of the data are made of.
FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "load": {"at": is_finite, "checksum": _is_text, "train_samples": is_finite},
    "speed": {"samples_per_s": is_finite},
    "train": {"epoch": is_finite},
    "eval": {"epoch": is_finite, "accuracy": is_number},
    "end": {"epoch": is_finite},
    "bad": {"name": _is_text},
    "unreadable": {"name": _is_text},
    "data_changed": {"mended": lambda value: isinstance(value, list) and all(map(_is_text, value))},
}


class Listener(Protocol):
    """Writer of another log, called with each event after it is in events.jsonl."""

    def __call__(self, event: Event) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Writer of <run>/events.jsonl that calls listeners. events: those so far, without what resumes have reverted."""

    def __init__(self, run: str | None, listeners: Sequence[Listener]):
        """Open the journal of a run; that of None, on all ranks but rank 0, writes nothing and is always empty."""
        self.listeners, self.events, self._start = listeners, list[Event](), 0.0
        self._file: TextIO | None = None
        if run is not None:
            self._open(run)

    def _open(self, run: str) -> None:
        path = os.path.join(run, FILE)
        self.events = history(run)
        last = max((entry["time"] for entry in _entries(run) if is_finite(entry.get("time"))), default=0.0)
        self._start = max(time.time(), last) - time.monotonic()
        try:
            file = self._file = open(path, "a", encoding="utf-8", opener=durable.regular)  # noqa: SIM115 (by __exit__)
        except OSError as error:
            raise UserError(f"out: cannot write to {run}: {error.strerror}") from None
        durable.sync_folder(run)
        if file.tell() and not _ends_with_newline(path):
            file.write("\n")  # a kill truncated the last line, and the next event needs one of its own

    def add(self, event: str, **values: Any) -> None:
        """Append an event. Its values are of JSON's types; listeners get numbers that are not finite as they are."""
        if self._file is None:
            return
        entry = {"event": event, "time": self.at(time.monotonic()), **values}
        append(self.events, entry)
        self._file.write(json_text(entry) + "\n")
        self._file.flush()
        for listener in self.listeners:
            listener(entry)

    def at(self, moment: float) -> float:
        """Return the Unix seconds of a time of this process's monotonic clock."""
        return self._start + moment

    def sync(self) -> None:
        """Bring the events so far to the disk, where a power cut does not undo them."""
        if self._file:
            os.fsync(self._file.fileno())

    def has(self, name: str) -> bool:
        return any(event["event"] == name for event in self.events)

    def last(self, name: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["event"] == name), None)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._file:
            self._file.close()
        for listener in self.listeners:
            listener.close()


def json_text(values: Any, indent: int | None = None) -> str:
    """Return values as JSON, which has neither NaN nor infinity: they become null."""
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)
    return json.dumps(finite, allow_nan=False, indent=indent)


def history(run: str) -> list[Event]:
    """Read the events of a run, without those that a resume has reverted. Lines that are no events are skipped.

    The accuracy of an evaluation is a float again: NaN if it was not finite.
    """
    events: list[Event] = []
    for entry in _entries(run):
        append(events, entry)
    return events


def _entries(run: str) -> Iterator[Event]:
    """Yield the events of a run, also those that a resume has reverted."""
    if os.path.exists(os.path.join(run, FILE)):
        with _open(run) as file:
            yield from filter(None, map(_parse, file))


def _open(run: str) -> TextIO:
    """Open the events of a run. Raises UserError if they cannot be read."""
    path = os.path.join(run, FILE)
    with parsing(f"{path} cannot be read"):
        return open(path, encoding="utf-8", errors="replace")


def check(run: str) -> list[str]:
    """Check the events of a run that goes on; what a kill or a power cut has truncated at its end may be skipped.

    Returns:
        A line for the console for each truncated one at the end of the file.
    """
    path, truncated = os.path.join(run, FILE), list[int]()
    if not os.path.exists(path):
        return []
    with _open(run) as file:
        for number, line in enumerate(file, 1):
            entry = _parse(line)
            if entry and not _is_complete(entry):
                entry = None
            if entry is None:
                truncated.append(number)
            elif not truncated or entry["event"] == "resume":
                truncated = []  # by the end of an earlier process
            else:
                raise UserError(
                    Option("--resume"),
                    f": line {truncated[0]} of {path} is not an event, and no kill has cut it off; restore "
                    "the file from a copy, or delete the line, whose event is lost then",
                )
    return [f"line {number} of {path} was cut off; its event is lost" for number in truncated]


def _is_complete(event: Event) -> bool:
    tests = {"time": is_finite, **FIELDS.get(event["event"], {})}
    return all(test(event.get(name)) for name, test in tests.items())


def _parse(line: str) -> Event | None:
    """Return the event of a line; None if a kill has truncated it, or if it is no event with a numbered step."""
    try:
        entry = regular.parse_json(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
        return None
    if entry["event"] == "eval" and "accuracy" in entry and entry["accuracy"] is None:
        entry["accuracy"] = math.nan
    step = entry.get("step", None if entry["event"] == "resume" else 0)
    return entry if isinstance(step, int | float) else None


def append(events: list[Event], entry: Event) -> None:
    """Append one event in place. A resume from step k removes the events of later steps, and every `end`."""
    if entry["event"] == "resume":
        events[:] = [event for event in events if event.get("step", 0) <= entry["step"] and event["event"] != "end"]
    events.append(entry)


def named(events: Sequence[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


def first(events: Sequence[Event], name: str) -> Event | None:
    return next((event for event in events if event["event"] == name), None)


def best_evaluation(events: Sequence[Event]) -> Event | None:
    """Return the evaluation of the best checkpoint of a run; None before the first."""
    best = next((event["step"] for event in reversed(events) if event["event"] == "best"), None)
    return next((event for event in reversed(events) if event["event"] == "eval" and event["step"] == best), None)


def _ends_with_newline(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
