"""Journal of a run: events in order, across kills and resumes."""

import json
import math
import time

import pytest

from zoo.data.errors import UserError
from zoo.logs.journal import FILE, Journal, check, history


class Recorder:
    """Listener that records the events it receives."""

    def __init__(self):
        self.received, self.closed = [], False

    def __call__(self, event):
        self.received.append(event)

    def close(self):
        self.closed = True


def write(folder, *texts):
    (folder / FILE).write_text("".join(texts), encoding="utf-8")


def line(event, /, **values):
    return json.dumps({"event": event, "time": 1.0, **values}) + "\n"


def steps(events):
    """Return name and step of each event."""
    return [(event["event"], event.get("step")) for event in events]


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_a_truncated_last_line_is_dropped_and_the_next_event_kept(tmp_path, kept):
    last = line("eval", step=20, epoch=2.0, accuracy=0.5)
    assert kept < len(last) - 1
    write(tmp_path, line("begin"), line("eval", step=10, epoch=1.0, accuracy=0.4), last[:kept])
    with Journal(str(tmp_path), []) as journal:
        assert steps(journal.events) == [("begin", None), ("eval", 10)]
        journal.add("eval", step=30, epoch=3.0, accuracy=0.6)
    assert steps(history(str(tmp_path))) == [("begin", None), ("eval", 10), ("eval", 30)]


def test_a_resume_reverts_later_events(tmp_path):
    write(
        tmp_path,
        line("load"),
        line("begin"),
        line("train", step=5),
        line("eval", step=10, accuracy=0.9),
        line("save", step=10),
        line("train", step=15),
        line("eval", step=20, accuracy=0.95),
        line("bad", name="x"),
        line("resume", step=10),
        line("train", step=15),
        line("eval", step=20, accuracy=0.7),
    )
    expected = [
        ("load", None),
        ("begin", None),
        ("train", 5),
        ("eval", 10),
        ("save", 10),
        ("bad", None),
        ("resume", 10),
        ("train", 15),
        ("eval", 20),
    ]
    assert steps(history(str(tmp_path))) == expected
    with Journal(str(tmp_path), []) as journal:
        assert journal.last("eval")["accuracy"] == 0.7


def test_numbers_that_are_not_finite_are_null_in_the_file_alone(tmp_path):
    recorder = Recorder()
    values = {"loss": math.nan, "grad_norm": math.inf, "nested": {"list": [1.5, -math.inf]}, "lr": 0.1, "name": "NaN"}
    with Journal(str(tmp_path), [recorder]) as journal:
        journal.add("train", step=1, **values)
        assert recorder.received[0].items() >= {key: values[key] for key in ("grad_norm", "nested", "lr")}.items()
        assert math.isnan(recorder.received[0]["loss"]) and math.isnan(journal.events[0]["loss"])

    def refuse(name):
        raise AssertionError(name)

    stored = json.loads((tmp_path / FILE).read_text(), parse_constant=refuse)
    del stored["time"]
    nulls = {"loss": None, "grad_norm": None, "nested": {"list": [1.5, None]}}
    assert stored == {"event": "train", "step": 1, **values, **nulls}


@pytest.mark.parametrize("stored", ["null", "NaN"])  # NaN: of an older version
def test_an_accuracy_that_is_not_finite_is_nan(tmp_path, stored):
    write(tmp_path, f'{{"event": "eval", "time": 1.0, "step": 1, "accuracy": {stored}}}\n')
    with Journal(str(tmp_path), []) as journal:
        assert math.isnan(journal.last("eval")["accuracy"])
        journal.add("eval", step=2, accuracy=0.5)
        journal.add("eval", step=3, accuracy=math.nan)
    assert [math.isnan(event["accuracy"]) for event in history(str(tmp_path))] == [True, False, True]


BEGIN = '{"event": "begin", "time": 1.0}\n'
STEP = '{"event": "train", "time": 2.0, "step": 1, "epoch": 0.5}\n'
RESUME = '{"event": "resume", "time": 3.0, "step": 0}\n'


@pytest.mark.parametrize(
    "cut", ['{"event": "train", "st', "{", '{"event": "t\0\0\0', "\0\0\0\0", '{"event": "a", "b": [[[']
)
def test_a_truncated_last_line_is_named_and_passes(tmp_path, cut):
    file = tmp_path / "events.jsonl"
    for tail in (cut, cut + "\n"):
        file.write_text(BEGIN + STEP + tail)
        assert check(str(tmp_path)) == [f"line 3 of {file} was cut off; its event is lost"]
        assert steps(history(str(tmp_path))) == [("begin", None), ("train", 1)]
    file.write_text(BEGIN + STEP + cut + "\n" + cut + "\n" + RESUME + STEP)  # the first resume was killed, too
    assert check(str(tmp_path)) == []


@pytest.mark.parametrize(
    "text, line",
    [
        (BEGIN + '{"event": "train", "st\n' + STEP, 2),  # no process began after it
        ("[1, 2]\n" + BEGIN, 1),
        (BEGIN + "<html>\n" + STEP, 2),
        (BEGIN + '{"event": "resume"}\n' + STEP, 2),
        (BEGIN + "[" * 100_000 + "\n" + STEP, 2),
    ],
    ids=range(5),
)
def test_other_lines_that_are_no_events_are_refused_by_number(tmp_path, text, line):
    (tmp_path / "events.jsonl").write_text(text)
    with pytest.raises(UserError, match=f"line {line} of .*events.jsonl is not an event"):
        check(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        '"save", "step": 1',
        '"bad", "time": 2.0, "step": 1, "name": ["a"]',
        '"data_changed", "time": 2.0, "mended": "a"',
        '"load", "time": 2.0, "at": 1.0, "train_samples": 3',
        '"train", "time": NaN, "step": 1, "epoch": 1.0',
        '"eval", "time": 2.0, "step": 1, "epoch": 1.0, "accuracy": "0.5"',
    ],
)
def test_a_run_does_not_go_on_from_events_without_what_its_logs_need(tmp_path, text):
    (tmp_path / "events.jsonl").write_text(f'{BEGIN}{{"event": {text}}}\n{STEP}')
    with pytest.raises(UserError, match="line 2 of .*events.jsonl is not an event"):
        check(str(tmp_path))


def test_times_never_decrease_and_ignore_a_clock_that_is_set(tmp_path, monkeypatch):
    host = dict(wall=1.7e9, up=5000.0)
    monkeypatch.setattr(time, "time", lambda: host["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: host["up"])
    with Journal(str(tmp_path), []) as journal:
        for jump in (0, -1e6, 1e8):
            journal.add("train", step=1)
            host = dict(wall=host["wall"] + jump, up=host["up"] + 1)
    with open(tmp_path / FILE, "a") as file:
        file.writelines(line("train", step=1, time=value) for value in ("x", math.nan, math.inf, None))
    host = dict(wall=1.6e9, up=10.0)  # after a boot, with a clock that is wrong
    with Journal(str(tmp_path), []) as journal:
        journal.add("resume", step=1)
    assert [event["time"] for event in journal.events[:3]] == [1.7e9, 1.7e9 + 1, 1.7e9 + 2]
    assert journal.events[-1]["time"] == 1.7e9 + 2
