"""AI-Rank log, as a function of events and as a file of a run."""

import itertools
import os
from decimal import Decimal

import pytest

from zoo.bench.airank_log import deviations, parse
from zoo.logs.airank import Writer, lines
from zoo.logs.journal import Journal

T = 1_700_000_000.0
LOAD = {
    "event": "load",
    "time": T + 1.5,
    "at": T,
    "checksum": "37724b19b6e5d41f9f147936d60b3c29",
    "train_samples": 1000,
    "val_samples": 100,
}
BEGIN = {"event": "begin", "time": T + 2}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Advance the journal's clock by a second per event, so that a slow machine makes no epoch suspiciously long."""
    ticks = itertools.count(T)
    monkeypatch.setattr(Journal, "at", lambda self, moment: next(ticks))


def evaluation(epoch, accuracy, seconds=None):
    """Return an evaluation `seconds` after test_begin; by default 10 s per epoch."""
    return {
        "event": "eval",
        "time": T + 2 + (10 * epoch if seconds is None else seconds),
        "step": int(epoch * 100),
        "epoch": epoch,
        "accuracy": accuracy,
    }


def end(epoch, seconds):
    return {"event": "end", "time": T + 2 + seconds, "step": int(epoch * 100), "epoch": epoch}


def run(*accuracies):
    """Return the events of a finished run with an evaluation after every epoch."""
    evals = [evaluation(float(epoch), accuracy) for epoch, accuracy in enumerate(accuracies, 1)]
    return [LOAD, BEGIN, *evals, end(float(len(evals)), 10 * len(evals) + 0.25)]


def texts(events, target=None, warmup=0):
    return [line.split(" ", 2)[2] for line in lines(events, target, warmup)]


def check(events, target=None, warmup=0):
    """Return the deviations that check_log --strict reports for the log of these events."""
    return deviations(
        parse(lines(events, target, warmup)), None if target is None else Decimal(str(target)), 1000, warmup
    )


def test_exact_text():
    assert lines(run(0.25, 0.711, 2 / 3), 0.711, 0) == [
        "AI-Rank-log 1700000000.000000 load_data, checksum:37724b19b6e5d41f9f147936d60b3c29",
        "AI-Rank-log 1700000002.000000 test_begin",
        "AI-Rank-log 1700000012.000000 eval_accuracy:0.25000000, total_epoch_cnt:1",
        "AI-Rank-log 1700000022.000000 eval_accuracy:0.71100000, total_epoch_cnt:2",
        "AI-Rank-log 1700000022.000000 target_quality_time:20.000000sec",
        "AI-Rank-log 1700000032.000000 eval_accuracy:0.66666667, total_epoch_cnt:3",
        "AI-Rank-log 1700000032.250000 test_finish",
        "AI-Rank-log 1700000032.250000 total_use_time:30.250000sec",
        "AI-Rank-log 1700000032.250000 avg_ips:99.174images/sec",
    ]  # 3000 / 30.25
    assert check(run(0.25, 0.711, 2 / 3), 0.711) == []


@pytest.mark.parametrize("warmup, ips", [(0, "49.751"), (1, "49.669"), (2, "49.505"), (3, "49.020")])
def test_warm_up_is_left_out(warmup, ips):
    """Four epochs of 20 s, the last 0.4 s to close the run: (4 - warmup) * 1000 / (20 * (4 - warmup) + 0.4)."""
    evals = [evaluation(float(epoch), 0.1 * epoch, 20 * epoch) for epoch in (1, 2, 3, 4)]
    events = [LOAD, BEGIN, *evals, end(4.0, 80.4)]
    assert float(ips) == pytest.approx((4 - warmup) * 1000 / (20 * (4 - warmup) + 0.4), abs=6e-4)
    assert texts(events, None, warmup)[-1] == f"avg_ips:{ips}images/sec"
    assert check(events, None, warmup) == []


def open_journal(folder, target=0.8, warmup=0):
    return Journal(str(folder), [Writer(str(folder), target, warmup)])


def begin(journal):
    values = {key: value for key, value in LOAD.items() if key not in ("event", "time")}
    journal.add("load", **values)
    journal.add("begin")


def written(folder):
    return (folder / "airank.log").read_text(encoding="utf-8")


def test_the_file_follows_the_journal(tmp_path):
    with open_journal(tmp_path) as journal:
        begin(journal)
        assert len(written(tmp_path).splitlines()) == 2
        journal.add("train", step=1, epoch=0.5)
        journal.add("eval", step=2, epoch=1.0, accuracy=0.9)
        assert len(written(tmp_path).splitlines()) == 4  # with the target
        journal.add("end", step=2, epoch=1.0)
        expected = "".join(line + "\n" for line in lines(journal.events, 0.8, 0))
    assert written(tmp_path) == expected and len(expected.splitlines()) == 7
    assert deviations(parse(expected.splitlines()), Decimal("0.8")) == []
    assert sorted(os.listdir(tmp_path)) == ["airank.log", "events.jsonl"]  # nothing left aside


def test_a_resume_reverts_evaluations(tmp_path):
    """A run killed after its last checkpoint repeats what came later, and may reach the target later."""
    with open_journal(tmp_path) as journal:
        begin(journal)
        journal.add("eval", step=10, epoch=1.0, accuracy=0.5)
        journal.add("eval", step=20, epoch=2.0, accuracy=0.85)
    started = written(tmp_path).splitlines()[1]
    with open_journal(tmp_path) as journal:
        journal.add("resume", step=10)
        assert "cnt:2" not in written(tmp_path) and "target_quality_time" not in written(tmp_path)
        journal.add("eval", step=20, epoch=2.0, accuracy=0.6)
        journal.add("eval", step=30, epoch=3.0, accuracy=0.8)
        journal.add("end", step=30, epoch=3.0)
    log = written(tmp_path).splitlines()
    assert log[1] == started  # the clock never stops
    assert [line.split("total_epoch_cnt:")[1] for line in log if "total_epoch_cnt" in line] == ["1", "2", "3"]
    assert log[5].split(" ", 2)[2].startswith("target_quality_time:")
    assert deviations(parse(log), Decimal("0.8")) == []


def test_a_speed_run_declares_the_throughput_of_the_updates_it_counted():
    speed = {"event": "speed", "time": T + 40, "samples_per_s": 80.25, "drop": 1, "count": 9}
    assert texts([LOAD, BEGIN, speed, end(0.5, 40.0)])[-2:] == [
        "total_use_time:40.000000sec",
        "avg_ips:80.250images/sec",
    ]
