"""AI-Rank training log, a pure function of the events of a run.

Grammar and definitions: AI-Rank's rules (github.com/AI-Rank/AI-Rank, README of the software track). Accuracies are
fractions, epochs count from 1, and the clock never stops: it includes evaluations, checkpoints and the time between a
kill and a resume.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.data import durable
from zoo.logs.journal import Event, history

TAG = "AI-Rank-log"
FILE = "airank.log"
LOGGED_EVENTS = ("load", "begin", "eval", "speed", "resume", "end")  # a resume may remove lines


def lines(events: Sequence[Event], target: float | None, warmup_epochs: int) -> list[str]:
    """Return the lines of the log, of a finished run or of one so far.

    Args:
        target: Accuracy, as a fraction, for which target_quality_time is logged when it is first reached.
        warmup_epochs: Epochs at the start of the run that avg_ips leaves out.
    """
    log: list[str] = []
    begin: Event = {}
    load: Event = {}
    warm_epochs, warm_time, target_reached = 0.0, 0.0, False
    speed: float | None = None  # of the updates that a speed run counts
    for event in events:
        name, now = event["event"], event["time"]
        if name == "load" and not load:
            load = event
            log.append(_line(event["at"], f"load_data, checksum:{event['checksum']}"))
        elif name == "begin" and not begin:
            begin, warm_time = event, now
            log.append(_line(now, "test_begin"))
        elif name == "eval" and begin:
            epochs = _epoch_count(event["epoch"])
            log.append(_line(now, f"eval_accuracy:{event['accuracy']:.8f}, total_epoch_cnt:{epochs}"))
            if target is not None and not target_reached and event["accuracy"] >= target:
                target_reached = True
                log.append(_line(now, f"target_quality_time:{now - begin['time']:.6f}sec"))
            if event["epoch"] <= warmup_epochs:
                warm_epochs, warm_time = event["epoch"], now
        elif name == "speed":
            speed = event["samples_per_s"]
        elif name == "end" and begin:
            if speed is None:
                samples = (event["epoch"] - warm_epochs) * load["train_samples"]
                speed = samples / max(now - warm_time, 1e-9)
            log.append(_line(now, "test_finish"))
            log.append(_line(now, f"total_use_time:{now - begin['time']:.6f}sec"))
            # The grammar has no other unit; for videos, an image is a clip.
            log.append(_line(now, f"avg_ips:{speed:.3f}images/sec"))
    return log


class Writer:
    """Journal listener that rewrites <run>/airank.log, atomically, whenever an event changes it."""

    def __init__(self, run: str, target: float | None, warmup_epochs: int):
        """Write the log of the events so far, if any: a kill may have come between the last one and its line."""
        self.run, self.target, self.warmup_epochs = run, target, warmup_epochs
        self._write()

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] in LOGGED_EVENTS:
            self._write()

    def close(self) -> None:
        """Do nothing: no file stays open between events."""

    def _write(self) -> None:
        text = "".join(line + "\n" for line in lines(history(self.run), self.target, self.warmup_epochs))
        if not text:
            return
        path = os.path.join(self.run, FILE)
        durable.replace(path, text.encode(), f"{path}.writing")


def _line(time: float, text: str) -> str:
    return f"{TAG} {time:.6f} {text}"


def _epoch_count(epoch: float) -> str:
    """Format a counter so that avg_ips can be recomputed from it; the rules' own example has whole numbers."""
    return str(int(epoch)) if epoch == int(epoch) else f"{epoch:.6f}"
