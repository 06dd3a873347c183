"""The slot for the newest frame: what is dropped is counted, and whatever ends a source ends the wait for it."""

import threading

import numpy as np
import pytest

from zoo.data.errors import UserError
from zoo.predict import stream_sources
from zoo.predict.stream_sources import Frame, LatestFrame, Source, in_real_time, one_by_one

WAIT = 20  # seconds at most; no test takes as long


def frame(number):
    return Frame(number, number / 10, lambda: np.full((1, 1, 3), number, np.uint8))


def source(frames):
    closed = []
    return Source("camera", True, None, iter(frames), lambda: closed.append(1)), closed


def never():
    return False


class Controlled:
    """Frames that come when the test says so: `give(n)` returns when the n-th has been put into the slot."""

    def __init__(self):
        self.allowed, self.asked = threading.Semaphore(0), threading.Semaphore(0)

    def __iter__(self):
        number = 0
        while True:
            self.asked.release()
            assert self.allowed.acquire(timeout=WAIT)
            yield frame(number)
            number += 1

    def give(self, count):
        for _ in range(count):
            assert self.asked.acquire(timeout=WAIT)
            self.allowed.release()
        assert self.asked.acquire(timeout=WAIT)  # the last one has been put, and the next one is asked for
        self.asked.release()


def test_the_newest_frame_is_taken_and_others_are_counted():
    controlled = Controlled()
    latest = LatestFrame(source(controlled)[0], 1, WAIT, never)
    frames = iter(latest)
    numbers = []
    for count in (1, 1, 4, 2, 1):
        controlled.give(count)
        numbers.append(next(frames).frame.number)
    assert numbers == [0, 1, 5, 7, 8] and latest.dropped == 4
    controlled.allowed.release()
    latest.close()


def test_only_every_nth_frame_counts():
    controlled = Controlled()
    latest = LatestFrame(source(controlled)[0], 3, WAIT, never)
    controlled.give(9)  # 0, 3 and 6 count
    assert next(iter(latest)).frame.number == 6 and latest.dropped == 2
    controlled.allowed.release()
    latest.close()


def test_the_end_of_a_source():
    opened, closed = source([frame(0)])
    latest = LatestFrame(opened, 1, WAIT, never)
    assert [captured.frame.number for captured in latest] == [0]
    latest.close()
    assert closed == [1]


def test_the_error_of_a_source_is_raised_after_its_last_frame():
    def failing():
        yield frame(0)
        raise UserError("unplugged")

    latest = LatestFrame(source(failing())[0], 1, WAIT, never)
    frames = iter(latest)
    assert next(frames).frame.number == 0
    with pytest.raises(UserError, match="unplugged"):
        next(frames)
    latest.close()


def test_a_source_that_stalls():
    controlled = Controlled()
    opened, closed = source(controlled)
    latest = LatestFrame(opened, 1, 0.05, never)
    with pytest.raises(UserError, match=r"camera: no frame for 0.05 s; .*--timeout"):
        next(iter(latest))
    latest._thread.join = lambda timeout: None  # it never answers: it is left alone, and so is the source
    latest.close()
    assert closed == []
    controlled.allowed.release()


def test_frames_that_are_passed_over_are_signs_of_life(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(stream_sources.time, "monotonic", lambda: clock[0])
    controlled = Controlled()
    latest = LatestFrame(source(controlled)[0], 100, 10, never)
    controlled.give(1)
    frames = iter(latest)
    next(frames)
    clock[0] = 9.0
    controlled.give(1)
    clock[0] = 18.0  # 9 s after the last frame, which did not count
    asked = []
    latest.stopped = lambda: len(asked) == 2 or asked.append(1)
    assert next(frames, None) is None  # stopped, not stalled
    controlled.allowed.release()
    latest.close()


def test_a_program_that_is_asked_to_end():
    controlled = Controlled()
    latest = LatestFrame(source(controlled)[0], 1, WAIT, lambda: True)
    controlled.give(1)
    assert list(latest) == []
    controlled.allowed.release()
    latest.close()


def test_a_file_at_its_own_pace(monkeypatch):
    clock, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(stream_sources.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(stream_sources.time, "sleep", sleep)
    for paced in in_real_time(map(frame, range(4))):
        assert clock[0] == pytest.approx(100 + max(0.0, [0, 0.1, 0.5, 0.5][paced.number]))
        if paced.number == 1:
            clock[0] += 0.4  # the consumer is late; frame 2 was due at 0.2
    assert slept == pytest.approx([0, 0.1, 0, 0])


def test_a_file_is_read_wholly_or_until_the_program_is_asked_to_end():
    assert [captured.frame.number for captured in one_by_one(map(frame, range(5)), never)] == list(range(5))
    asked = iter([False, False, True])
    assert len(list(one_by_one(map(frame, range(5)), lambda: next(asked)))) == 2
