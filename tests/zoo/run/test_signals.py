"""Signals stop a run after its step, all ranks at the same, and are given back to those who handled them before."""

import signal
import threading

import pytest

from tests.helpers.processes import losses, require_framework, train_arguments
from tests.helpers.ranks import start_ranks, wait_for_losses
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


EVERY_OTHER_STEP = "from zoo.distributed import group; group.SMALL_WORLD, group.SECONDS_PER_RANK = 1, 1e9; "


@pytest.mark.slow
def test_a_signal_stops_all_ranks_after_the_next_exchange(demo_sets, tmp_path):
    require_framework("torch")
    folder = tmp_path / "run"
    arguments = train_arguments(
        demo_sets, "tsm", folder, "torch", train__epochs=2000, train__save_every="2000 epochs", train__log_every=1
    )[1:]
    ranks = start_ranks(arguments, EVERY_OTHER_STEP)
    wait_for_losses(folder, 3)
    ranks[1].send_signal(signal.SIGTERM)
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [143, 143], outputs
    assert "stopped by signal 15 after saving" in outputs[0]
    assert len(losses(folder)) % 2 == 0
    assert (folder / "checkpoints/last").resolve().name == f"step-{len(losses(folder)):08d}"
