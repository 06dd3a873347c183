"""Speed mode and runs that end at their target, by train.py on tiny clips."""

import json
import os
import signal

import numpy as np
import pytest

from tests.helpers.training import command, events
from tests.helpers.training import run_here as run
from zoo.logs.journal import Journal, history

SPEED = ("--speed", "--drop", 2, "--count", 4)


@pytest.fixture(scope="module")
def speed_run(clips, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("speed") / "run")
    done = run(command(clips, *SPEED, "--out", folder, train__log_every=2))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_speed_run_times_its_updates_and_does_nothing_else(speed_run):
    folder, out = speed_run
    files = [".lock", "airank.log", "classes.csv", "config.yaml", "events.jsonl"]
    assert sorted(name for name in os.listdir(folder) if "tfevents" not in name) == files
    assert [event["event"] for event in events(folder)] == ["load", "begin", "train", "train", "train", "speed", "end"]
    begin, speed, end = (next(e for e in events(folder) if e["event"] == name) for name in ("begin", "speed", "end"))
    assert begin["speed"] == {"drop": 2, "count": 4} and end["step"] == 6
    assert speed["samples"] == 4 * 4 and len(speed["step_ms"]["all"]) == 4
    np.testing.assert_allclose(sum(speed["step_ms"]["all"]) / 1000, speed["seconds"], rtol=1e-2)
    np.testing.assert_allclose(speed["samples_per_s"], 16 / speed["seconds"], rtol=1e-12)
    assert speed["step_ms"]["p50"] == np.median(speed["step_ms"]["all"])
    assert speed["seconds"] < end["time"] - begin["time"] and 0 <= speed["data_wait_fraction"] <= 1
    assert f"speed: {speed['samples_per_s']:.2f} samples/s over 4 updates" in out


def test_the_airank_log_of_a_speed_run_has_the_counted_throughput(speed_run):
    folder, _ = speed_run
    with open(os.path.join(folder, "airank.log")) as file:
        texts = [line.split(" ", 2)[2].strip() for line in file]
    speed = next(event for event in events(folder) if event["event"] == "speed")
    assert [text.split(":")[0].split(",")[0] for text in texts] == [
        "load_data",
        "test_begin",
        "test_finish",
        "total_use_time",
        "avg_ips",
    ]
    assert texts[-1] == f"avg_ips:{speed['samples_per_s']:.3f}images/sec"


def test_the_weights_after_a_speed_run_are_those_of_training(clips, speed_run, tmp_path):
    """The losses of both loops are equal to the last bit."""
    done = run(command(clips, "--max-steps", 6, "--out", tmp_path / "run", train__log_every=2))
    assert done.returncode == 0, done.stderr
    losses = [
        [event["loss"] for event in events(folder) if event["event"] == "train"]
        for folder in (speed_run[0], str(tmp_path / "run"))
    ]
    assert losses[0] == losses[1]


def test_a_stopped_speed_run_has_no_result(clips, tmp_path, monkeypatch):
    folder, add = str(tmp_path / "run"), Journal.add

    def stop_at_first_log(journal, event, **values):
        add(journal, event, **values)
        if event == "train":
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Journal, "add", stop_at_first_log)
    done = run(command(clips, "--speed", "--drop", 1, "--count", 10, "--out", folder))
    kinds = {event["event"] for event in events(folder)}
    assert done.returncode == 143 and "speed" not in kinds and "end" not in kinds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--drop", 3), "--drop: belongs to --speed"),
        (("--speed", "--count", 0), "argument --count: expected a whole number of at least 1, got '0'"),
        (("--max-steps", 0), "argument --max-steps: expected a whole number of at least 1, got '0'"),
        (("--speed", "--max-steps", 5), "leave --max-steps out"),
        (("--speed", "--until-target"), "leave --until-target out"),
        (("--speed",), "120 updates (20 dropped, 100 timed), but the recipe's run has 24"),
        (("--until-target", "-o", "target=null"), "--until-target: trains up to a target, but the recipe has none"),
        (("--until-target", "--eval-only", "--weights", "x"), "--eval-only trains nothing"),
    ],
)
def test_mistakes_end_in_one_message(clips, tmp_path, words, message):
    done = run(command(clips, *words, "--out", tmp_path / "run"))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_speed_run_cannot_be_resumed(speed_run):
    done = run([*command("", "--resume", speed_run[0])[:2], "--resume", speed_run[0]])
    assert done.returncode == 2 and "is a run of --speed" in done.stderr


def test_a_run_until_its_target_stops_there_and_can_go_on(clips, tmp_path):
    folder = str(tmp_path / "run")
    done = run(command(clips, "--until-target", "--out", folder, "-o", "target=0.01"))
    assert done.returncode == 0, done.stderr
    first = events(folder)
    reached = next(event for event in first if event["event"] == "eval" and event["accuracy"] >= 0.01)
    assert first[-1] == {**first[-1], "event": "end", "step": reached["step"]} and reached["step"] < 24
    with open(os.path.join(folder, "checkpoints", "last", "checkpoint.json")) as file:
        assert json.load(file)["step"] == reached["step"]
    again = run([*command(clips)[:2], "--resume", folder, "--until-target"])
    assert again.returncode == 0 and "nothing to do" in again.stdout and events(folder) == first
    assert first[-1]["reason"] == "target"
    patient = [*command(clips)[:2], "--resume", folder, "-o", "train.early_stopping=1"]
    done = run(patient)
    end = events(folder)[-1]
    accuracies = [event["accuracy"] for event in history(folder) if event["event"] == "eval"]
    assert done.returncode == 0 and end["reason"] == "early_stopping" and "ended early" in done.stdout
    assert end["step"] < 24 and accuracies[-1] <= max(accuracies[:-1])  # of 8 clips, so that it is soon no better
    assert "nothing to do" in run(patient).stdout and events(folder)[-1] == end
    on = run([*command(clips)[:2], "--resume", folder, "-o", "train.early_stopping=null"])
    last = events(folder)[-1]
    assert on.returncode == 0 and (last["step"], last["reason"]) == (24, "steps")
