"""Seconds by stage, with a clock that the test sets."""

import threading

import pytest

from zoo.data import stages
from zoo.data.stages import COLLATE, DECODE, READ, TRANSFORM, measure, stage


class Clock:
    """Time in seconds that the test sets."""

    now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def test_time_belongs_to_the_innermost_stage(clock):
    @stage(DECODE)
    def decode():
        clock.sleep(2)
        with stage(READ):
            clock.sleep(3)
        clock.sleep(4)

    with measure(clock) as seconds:
        clock.sleep(1)
        decode()
        clock.sleep(0.5)
        decode()
        with stage(COLLATE):
            clock.sleep(7)
    assert seconds == {READ: 6, DECODE: 12, TRANSFORM: 1.5, COLLATE: 7}
    assert sum(seconds.values()) == clock.now


def test_a_stage_ends_with_an_error(clock):
    with pytest.raises(ValueError), measure(clock) as seconds:
        try:
            with stage(READ):
                clock.sleep(1)
                raise OSError
        except OSError:
            clock.sleep(2)
        raise ValueError
    assert (seconds[READ], seconds[TRANSFORM]) == (1, 2)
    with measure(clock) as seconds:  # the next measurement begins with nothing
        clock.sleep(5)
    assert seconds == {READ: 0, DECODE: 0, TRANSFORM: 5, COLLATE: 0}


def test_stages_of_other_threads_and_outside_of_a_measurement_do_not_count(clock):
    def read():
        with stage(READ):
            clock.sleep(1)

    read()
    with measure(clock) as seconds:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert seconds == {READ: 0, DECODE: 0, TRANSFORM: 1, COLLATE: 0}


def test_total():
    assert stages.total([{READ: 1.0}, {READ: 2.0, COLLATE: 3.0}]) == {READ: 3, DECODE: 0, TRANSFORM: 0, COLLATE: 3}
