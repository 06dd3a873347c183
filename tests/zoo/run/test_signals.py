"""Signals stop a run after its step, and are given back to those who handled them before."""

import signal
import threading

import pytest

from zoo.run.stopping import StopSignal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_are_received_and_given_back(number):
    def mine(*_):
        raise AssertionError

    before = signal.signal(number, mine)
    stop = StopSignal()
    try:
        stop.restore()  # was never installed
        assert signal.getsignal(number) is mine
        stop.install()
        signal.raise_signal(number)
        assert stop.received == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)  # a second one does not wait for the step
        stop.restore()
        assert signal.getsignal(number) is mine and stop.received == number
    finally:
        signal.signal(number, before)


def test_another_thread_leaves_the_signals_alone():
    before, stop = signal.getsignal(signal.SIGTERM), StopSignal()
    thread = threading.Thread(target=stop.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    stop.restore()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before, stop = signal.signal(signal.SIGHUP, signal.SIG_IGN), StopSignal()
    try:
        stop.install()
        signal.raise_signal(signal.SIGHUP)
        assert stop.received is None
        stop.restore()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
