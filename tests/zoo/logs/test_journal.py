"""The journal of a run: events in order, across kills and resumes."""

import json
import time

import pytest

from zoo.logs.journal import FILE, Journal, append, history


class Ear:
    """A listener that remembers."""

    def __init__(self):
        self.heard, self.closed = [], False

    def __call__(self, event):
        self.heard.append(event)

    def close(self):
        self.closed = True


def write(folder, *texts):
    (folder / FILE).write_text("".join(texts), encoding="utf-8")


def line(kind, **values):
    return json.dumps({"event": kind, "time": 1.0, **values}) + "\n"


def kinds(events):
    return [(event["event"], event.get("step")) for event in events]


def test_an_event_is_in_the_file_and_with_the_listeners_at_once(tmp_path):
    ears = Ear(), Ear()
    before = time.time()
    with Journal(str(tmp_path), ears) as book:
        book.add("train", step=20, loss=0.5)
        stored = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
        assert stored == book.events[0] == ears[0].heard[0] == ears[1].heard[0]
        assert stored["event"] == "train" and stored["step"] == 20 and stored["loss"] == 0.5
        assert before <= stored["time"] <= time.time()
        assert not ears[0].closed
    assert ears[0].closed and ears[1].closed


def test_what_was_written_is_read_back(tmp_path):
    with Journal(str(tmp_path), []) as book:
        book.add("load", checksum='köln "1"\n', train_samples=10)
        book.add("eval", step=10, epoch=1.0, accuracy=0.123456789012345678)
        events = list(book.events)
    assert history(str(tmp_path)) == events
    with Journal(str(tmp_path), []) as book:
        assert book.events == events


def test_listeners_do_not_hear_the_past(tmp_path):
    write(tmp_path, line("begin"))
    ear = Ear()
    with Journal(str(tmp_path), [ear]) as book:
        book.add("resume", step=0)
    assert kinds(ear.heard) == [("resume", 0)]


def test_a_listener_already_finds_the_event_in_the_file(tmp_path):
    """airank.log is made from the file while the event is being told."""
    seen = []

    class Reader(Ear):
        def __call__(self, event):
            seen.append(history(str(tmp_path))[-1] == event)

    with Journal(str(tmp_path), [Reader()]) as book:
        book.add("begin")
        book.add("eval", step=1, epoch=1.0, accuracy=0.5)
    assert seen == [True, True]


def test_a_missing_file_is_an_empty_history(tmp_path):
    assert history(str(tmp_path)) == [] and history(str(tmp_path / "nowhere")) == []


def test_an_empty_file_is_an_empty_history(tmp_path):
    write(tmp_path)
    assert history(str(tmp_path)) == []
    with Journal(str(tmp_path), []) as book:
        book.add("begin")
    assert kinds(history(str(tmp_path))) == [("begin", None)]


@pytest.mark.parametrize("kept", range(0, 60, 7))
def test_a_cut_last_line_is_dropped_and_does_not_eat_the_next(tmp_path, kept):
    last = line("eval", step=20, epoch=2.0, accuracy=0.5)
    assert kept < len(last) - 1
    write(tmp_path, line("begin"), line("eval", step=10, epoch=1.0, accuracy=0.4), last[:kept])
    with Journal(str(tmp_path), []) as book:
        assert kinds(book.events) == [("begin", None), ("eval", 10)]
        book.add("eval", step=30, epoch=3.0, accuracy=0.6)
    assert kinds(history(str(tmp_path))) == [("begin", None), ("eval", 10), ("eval", 30)]


def test_a_last_line_that_lacks_its_newline_alone_counts(tmp_path):
    write(tmp_path, line("begin").rstrip("\n"))
    with Journal(str(tmp_path), []) as book:
        book.add("eval", step=1, epoch=1.0, accuracy=0.5)
    assert kinds(history(str(tmp_path))) == [("begin", None), ("eval", 1)]


def test_a_cut_in_the_middle_of_a_letter(tmp_path):
    (tmp_path / FILE).write_bytes(line("begin").encode() + '{"event": "bad", "name": "ü'.encode()[:-1])
    assert kinds(history(str(tmp_path))) == [("begin", None)]


def test_a_resume_takes_back_what_came_later(tmp_path):
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
    want = [
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
    assert kinds(history(str(tmp_path))) == want
    with Journal(str(tmp_path), []) as book:
        assert book.best() == 0.9 and book.last("eval")["accuracy"] == 0.7


def test_a_resume_takes_back_every_end(tmp_path):
    write(tmp_path, line("begin"), line("eval", step=10, accuracy=0.5), line("end", step=10))
    with Journal(str(tmp_path), []) as book:
        assert book.has("end")
        book.add("resume", step=10)
        assert not book.has("end") and kinds(book.events) == [("begin", None), ("eval", 10), ("resume", 10)]
        book.add("end", step=10)
    assert kinds(history(str(tmp_path)))[-1] == ("end", 10)


def test_a_resume_from_the_start_keeps_load_and_begin():
    events = [{"event": "load"}, {"event": "begin"}, {"event": "train", "step": 1}]
    append(events, {"event": "resume", "step": 0})
    assert kinds(events) == [("load", None), ("begin", None), ("resume", 0)]


def test_two_resumes_leave_one_line_of_time():
    events = []
    for kind, step in (
        ("begin", None),
        ("eval", 10),
        ("eval", 20),
        ("resume", 10),
        ("eval", 20),
        ("eval", 30),
        ("resume", 20),
        ("eval", 30),
    ):
        append(events, {"event": kind, **({} if step is None else {"step": step})})
    assert [event["step"] for event in events if event["event"] == "eval"] == [10, 20, 30]


def test_best_last_and_has(tmp_path):
    with Journal(str(tmp_path), []) as book:
        assert book.best() is None and book.last("eval") is None and not book.has("eval")
        for step, accuracy in ((1, 0.2), (2, 0.8), (3, 0.5)):
            book.add("eval", step=step, epoch=float(step), accuracy=accuracy)
        assert book.best() == 0.8 and book.last("eval")["step"] == 3 and book.has("eval") and not book.has("begin")


def test_listeners_are_closed_when_the_run_falls(tmp_path):
    ear = Ear()
    with pytest.raises(RuntimeError), Journal(str(tmp_path), [ear]) as book:
        book.add("begin")
        raise RuntimeError
    assert ear.closed and kinds(history(str(tmp_path))) == [("begin", None)]


def test_zeros_that_a_power_cut_leaves(tmp_path):
    write(tmp_path, line("begin"), "\0" * 100)
    with Journal(str(tmp_path), []) as book:
        book.add("eval", step=1, epoch=1.0, accuracy=0.5)
    assert kinds(history(str(tmp_path))) == [("begin", None), ("eval", 1)]
