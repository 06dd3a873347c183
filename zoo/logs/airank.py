"""The AI-Rank training log: a pure function of the events of a run.

Grammar and definitions: AI-Rank's rules (github.com/AI-Rank/AI-Rank, README of the software track). Accuracies are
fractions, epochs are counted from 1, the clock never pauses: it runs through evaluations, checkpoints and the time
between a kill and a resume.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.logs.journal import history

TAG = "AI-Rank-log"


def lines(events: Sequence[Mapping[str, Any]], target: float | None, warmup_epochs: int) -> list[str]:
    """The log of a run so far, finished or not."""
    written: list[str] = []
    begin: dict[str, Any] = {}
    loaded: dict[str, Any] = {}
    warm_epochs, warm_since, reached = 0.0, 0.0, False
    for event in events:
        kind, now = event["event"], event["time"]
        if kind == "load" and not loaded:
            loaded = dict(event)
            written.append(_line(event["at"], f"load_data, checksum:{event['checksum']}"))
        elif kind == "begin" and not begin:
            begin, warm_since = dict(event), now
            written.append(_line(now, "test_begin"))
        elif kind == "eval" and begin:
            count = _count(event["epoch"])
            written.append(_line(now, f"eval_accuracy:{event['accuracy']:.8f}, total_epoch_cnt:{count}"))
            if target is not None and not reached and event["accuracy"] >= target:
                reached = True
                written.append(_line(now, f"target_quality_time:{now - begin['time']:.6f}sec"))
            if event["epoch"] <= warmup_epochs:
                warm_epochs, warm_since = event["epoch"], now
        elif kind == "end" and begin:
            samples = (event["epoch"] - warm_epochs) * loaded["train_samples"]
            written.append(_line(now, "test_finish"))
            written.append(_line(now, f"total_use_time:{now - begin['time']:.6f}sec"))
            # The grammar knows no other unit; for video, an image is a clip.
            written.append(_line(now, f"avg_ips:{samples / max(now - warm_since, 1e-9):.3f}images/sec"))
    return written


class Writer:
    """Listens to a journal and keeps <run>/airank.log in step with it; every rewrite goes through a rename."""

    def __init__(self, run: str, target: float | None, warmup_epochs: int):
        self.run, self.target, self.warmup_epochs = run, target, warmup_epochs

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] not in ("load", "begin", "eval", "resume", "end"):
            return
        path = os.path.join(self.run, "airank.log")
        with open(path + ".writing", "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines(history(self.run), self.target, self.warmup_epochs))
        os.replace(path + ".writing", path)

    def close(self) -> None:
        """Nothing is held open between events."""


def _line(time: float, text: str) -> str:
    return f"{TAG} {time:.6f} {text}"


def _count(epoch: float) -> str:
    return str(int(epoch)) if epoch == int(epoch) else f"{epoch:.2f}"
