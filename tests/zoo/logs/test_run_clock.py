"""Times of events when somebody sets the clock of the host."""

import json
import time

import pytest

from zoo.logs import airank, mllog, run_clock
from zoo.logs.journal import FILE, Journal, history
from zoo.logs.run_clock import RunClock

YEAR = 366 * 86400.0


class Host:
    """A host whose clocks the test moves: the wall clock, and the time since its boot."""

    def __init__(self, monkeypatch):
        self.wall, self.up, self.boot = 1.7e9, 5000.0, "a" * 16
        monkeypatch.setattr(run_clock.time, "time", lambda: self.wall)
        monkeypatch.setattr(run_clock, "uptime", lambda: self.up)
        monkeypatch.setattr(run_clock, "boot", lambda: self.boot)

    def wait(self, seconds):
        self.wall, self.up = self.wall + seconds, self.up + seconds

    def reboot(self, name="b" * 16):
        self.up, self.boot = 10.0, name


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


def begin(folder, host, target=0.5):
    """Start a run that is killed after its first evaluation, ten seconds after its begin."""
    with Journal(str(folder), []) as journal:
        journal.add("load", at=journal.clock.at(host.up), checksum="ab" * 16, train_samples=100)
        facts = dict.fromkeys(mllog.REQUIRED)
        optimizer = {**dict.fromkeys(mllog.OPTIMIZER), "name": "sgd", "lr": 1.0, "peak_lr": 1.0, "min_lr": 0.0}
        sizes = {"train_samples": 100, "global_batch": 10, "target": target, "model": "resnet", "hosts": [{"cpu": "x"}]}
        journal.add("begin", **{**facts, "optimizer": {**optimizer, "warmup_steps": 0}, **sizes})
        host.wait(10)
        journal.add("eval", step=10, epoch=1.0, accuracy=0.1, seconds=2.0)
    return journal.clock


def resume(folder, host):
    """Resume the run, which ends ten seconds later; return the note on the clock and all durations."""
    with Journal(str(folder), []) as journal:
        journal.add("resume", step=10)
        host.wait(10)
        journal.add("eval", step=20, epoch=2.0, accuracy=0.9, seconds=2.0)
        journal.add("end", step=20, epoch=2.0)
    events = history(str(folder))
    times = [event["time"] for event in events]
    assert times == sorted(times)
    text = "\n".join(airank.lines(events, 0.5, 0))
    entries = [json.loads(line.removeprefix(mllog.TOKEN)) for line in mllog.lines(events, mllog.Submission("x"))]
    stamps = [entry["time_ms"] for entry in entries]
    assert stamps == sorted(stamps) and stamps[-1] - stamps[0] < 1e3 * YEAR
    assert not any(entry["value"]["throughput"] < 0 for entry in entries if entry["key"] == "tracked_stats")
    return journal.clock.note, {
        name: float(text.split(f"{name}:")[1].split("sec")[0].removesuffix("images/"))
        for name in ("target_quality_time", "total_use_time")
    }


def both(seconds):
    return {"target_quality_time": seconds, "total_use_time": seconds}


def test_a_clock_that_is_set_while_a_process_runs_changes_nothing(host, tmp_path):
    with Journal(str(tmp_path), []) as journal:
        for jump in (0, -1e6, 1e8, 5):
            host.wall += jump
            host.wait(1)
            journal.add("train", step=1)
    assert [event["time"] for event in journal.events] == [1.7e9 + second for second in (1, 2, 3, 4)]


@pytest.mark.parametrize("jump", [0, -3600, -1e9, 3600, 5e9])
def test_between_two_processes_of_a_boot_the_time_since_it_counts(host, tmp_path, jump):
    begin(tmp_path, host)
    host.wait(100)
    host.wall += jump
    note, durations = resume(tmp_path, host)
    assert durations == both(120.0)
    assert (note is None) == (jump == 0) and (note is None or f"by about {jump:.0f} s" in note)


@pytest.mark.parametrize("jump, gap, words", [(0, 100, None), (-200, 0, "before the last"), (2 * YEAR, 0, "more than")])
@pytest.mark.parametrize("boot", ["b" * 16, None])
def test_after_a_boot_or_on_another_host_its_clock_counts_if_it_is_plausible(host, tmp_path, jump, gap, words, boot):
    begin(tmp_path, host)
    host.wait(100)
    host.wall += jump
    host.reboot(boot)
    note, durations = resume(tmp_path, host)
    assert durations == both(20.0 + gap) and (note is None if words is None else words in note)


def test_reverted_events_count_and_damaged_times_do_not(host, tmp_path):
    begin(tmp_path, host)
    with Journal(str(tmp_path), []) as journal:
        host.wait(50)
        journal.add("train", step=15)
    host.reboot()
    host.wall -= 1000
    with open(tmp_path / FILE, "a") as file:
        for time_text in ('"x"', "NaN", "1e999", "null", "true"):
            file.write(f'{{"event": "train", "step": 1, "time": {time_text}, "clock": {{"boot": 3, "uptime": "x"}}}}\n')
    with Journal(str(tmp_path), []) as journal:
        journal.add("resume", step=10)
    assert journal.events[-1]["time"] == 1.7e9 + 60


def test_an_older_journal_whose_times_go_back_gives_no_negative_figures(tmp_path):
    times = {"load": 1000.0, "begin": 1001.0, "eval": 400.0, "end": 401.0}
    facts = {"load": {"at": 1000.0, "checksum": "ab", "train_samples": 10}, "eval": {"accuracy": 0.9}}
    with open(tmp_path / FILE, "w") as file:
        for name, when in times.items():
            file.write(json.dumps({"event": name, "time": when, "step": 0, "epoch": 1.0, **facts.get(name, {})}) + "\n")
    lines = airank.lines(history(str(tmp_path)), 0.5, 0)
    assert "AI-Rank-log 1001.000000 total_use_time:0.000000sec" in lines


def test_the_clocks_of_this_host():
    before = time.time()
    clock = RunClock(())
    reading = clock.read()
    assert clock.note is None and before <= reading.time <= time.time() + 1e-3
    assert reading.clock["uptime"] <= run_clock.uptime() and (run_clock.boot() or "0" * 16) != ""
    assert len(run_clock.boot() or "0" * 16) == 16 and run_clock.boot() == run_clock.boot()
    assert abs(clock.at(run_clock.uptime()) - time.time()) < 60


def test_a_kernel_that_tells_no_boot(monkeypatch, tmp_path):
    monkeypatch.setattr(run_clock, "BOOT_ID", tmp_path / "nothing")
    assert run_clock.boot() is None
