"""Rendezvous, collectives and failures of ranks without any framework: threads of this process, with short limits."""

import contextlib
import socket
import threading
import time

import numpy as np
import pytest

from zoo.data.errors import UserError
from zoo.distributed import group as groups
from zoo.distributed import heartbeat, rendezvous
from zoo.distributed.group import Polling
from zoo.distributed.heartbeat import Heartbeat
from zoo.distributed.rendezvous import connect
from zoo.trainer.world import Launch

LIMIT = 15  # seconds of a test


class Rank(threading.Thread):
    """A rank.

    Attributes:
        result: of its body.
        error: message of a UserError.
        ended: reason for which the heartbeat thread ended the process, here its connections.
    """

    def __init__(self, launch, body, straggler_timeout, timeout):
        super().__init__(daemon=True)
        self.launch, self.body, self.limits = launch, body, (straggler_timeout, timeout)
        self.group = self.result = self.error = self.ended = None
        self.start()

    def run(self):
        try:
            self.group = connect(self.launch, *self.limits)
            self.result = self.body(self.group)
            self.group.close()
        except UserError as error:
            self.error = str(error)

    def cut(self):
        """Close all connections, as the kernel does for a process that ends."""
        self.group._heartbeat._stopped.set()
        for connection in (*self.group._connections.values(), *self.group._heartbeat.peers.values()):
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def start(monkeypatch, request):
    """Return a function that starts a rank of a job; its `hold` waits until the test has ended."""
    started, over = [], threading.Event()
    monkeypatch.setattr(heartbeat, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_TIMEOUT", 0.5)
    monkeypatch.setattr(groups, "HEARTBEAT_GRACE", 0.2)
    monkeypatch.setattr(rendezvous, "WAIT_REPORT", 0.2)
    monkeypatch.setattr(rendezvous, "RETRY_INTERVAL", 0.02)
    monkeypatch.setattr(rendezvous.os, "getpid", threading.get_ident)  # ranks are told apart by their processes

    def end_process(thread, reason):
        rank = next(rank for rank in started if rank.group and rank.group._heartbeat is thread)
        rank.ended = reason
        rank.cut()

    monkeypatch.setattr(Heartbeat, "_end_process", end_process)

    def run(rank, size, body=lambda group: None, job="", address="127.0.0.1", straggler_timeout=60, timeout=LIMIT):
        launch = Launch(rank, size, rank, "test", address=address, job=f"{request.node.nodeid} {job}")
        started.append(Rank(launch, body, straggler_timeout, timeout))
        return started[-1]

    run.hold = over.wait
    yield run
    over.set()
    for rank in started:
        if rank.group and rank.is_alive():
            rank.cut()
        rank.join(LIMIT)
        assert not rank.is_alive()


def wait(*ranks):
    for rank in ranks:
        rank.join(LIMIT)
    return ranks


def run_all(start, size, body, **options):
    ranks = wait(*[start(rank, size, body, **options) for rank in range(size)])
    assert [rank.error or rank.ended for rank in ranks] == [None] * size
    return [rank.result for rank in ranks]


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_end(ranks):
    """Wait until the heartbeat threads have ended these ranks; return the reasons."""
    wait_until(lambda: all(rank.ended for rank in ranks))
    return [rank.ended for rank in ranks]


def test_all_gather_and_sum_are_the_same_on_all_ranks(start):
    def body(group):
        rank = group.rank
        total = group.sum({"f": np.array([0.1 * (rank + 1), 1e300]), "n": np.array(2**60 + rank)})
        return group.all_gather([rank, "ä" * 70000 * rank]), total

    for gathered, total in run_all(start, 3, body):
        assert gathered == [[rank, "ä" * 70000 * rank] for rank in range(3)]
        assert total["f"].tolist() == [0.1 + 0.2 + 0.1 * 3, 3e300] and total["f"].dtype == np.float64
        assert int(total["n"]) == 3 * 2**60 + 3 and total["n"].dtype == np.int64 and total["n"].shape == ()


def test_concatenate_and_gather(start):
    def body(group):
        odd = [group.rank] * (group.rank % 2) * 2
        return [group.concatenate([]), group.concatenate(odd), group.gather(group.rank), group.all_gather(7)]

    for rank, found in enumerate(run_all(start, 4, body)):
        assert found == [[], [1, 1, 3, 3], [0, 1, 2, 3] if rank == 0 else [rank], [7] * 4]


def test_two_runs_on_one_machine_do_not_mix(start):
    """Not even with the same ports: the handshake tells them apart."""

    def body(group):
        return group.all_gather(group.launch.job)

    ranks = wait(*[start(rank, 2, body, job) for job in "ab" for rank in (1, 0)])
    assert [rank.result for rank in ranks] == [[rank.launch.job] * 2 for rank in ranks]


def test_a_slow_rank_is_named_and_waited_for(start, capfd):
    """It joins late, and then stays behind for longer than a straggler may, at the beginning of the run."""

    def body(group):
        group.all_gather(0)
        time.sleep(0.4 * group.rank)
        return group.all_gather(group.rank)

    root = start(0, 2, body, straggler_timeout=0.1)
    time.sleep(0.3)
    assert [rank.result for rank in wait(root, start(1, 2, body, straggler_timeout=0.1))] == [[0, 1]] * 2
    errors = capfd.readouterr().err
    assert "waiting for rank 1 of 2 to join (" in errors and f"of at most {LIMIT} s)" in errors


def test_missing_ranks_are_named(start):
    for rank in wait(*[start(rank, 3, timeout=0.4) for rank in (0, 1)]):
        assert "rank 2 of 3 did not join rank 0 at 127.0.0.1 within 0 s" in rank.error
    (alone,) = wait(start(1, 2, job="alone", timeout=0.2))
    assert "rank 1 on" in alone.error and "cannot reach rank 0 at 127.0.0.1, ports" in alone.error


@pytest.mark.parametrize("ranks, rank", [((0, 0), 0), ((0, 1, 1), 1)])
def test_two_processes_of_the_same_rank(start, ranks, rank):
    started = []
    for number in ranks:
        started.append(start(number, 3))
        time.sleep(0.2)
    assert all(f"two processes were started as rank {rank}: rank {rank} (" in each.error for each in wait(*started))


@pytest.mark.parametrize(
    "address, message",
    [
        ("no-such-host.invalid", "gives 'no-such-host.invalid' as the host of rank 0"),
        ("a..b", "gives 'a..b' as the host of rank 0: "),
        ("203.0.113.7", "is not an address of"),
    ],
)
def test_a_wrong_address(address, message):
    with pytest.raises(UserError, match=message):
        connect(Launch(0, 2, 0, "test", address=address), 60, timeout=5)


def test_the_reason_of_a_failure_reaches_all_ranks(start):
    def body(group):
        group.all_gather(0)
        if group.rank == 2:
            group.fail("the disk is full")
            raise UserError("the disk is full")
        group.all_gather(1)

    ranks = [start(rank, 3, body) for rank in range(3)]
    for reason in wait_for_end(ranks[:2]):
        assert reason.startswith("rank 2 (") and "the disk is full" in reason


def test_a_lost_process_is_named(start):
    def body(group):
        if group.rank == 1:
            start.hold()
        group.all_gather(0)

    ranks = [start(rank, 3, body) for rank in range(3)]
    wait_until(lambda: all(rank.group for rank in ranks))
    ranks[1].cut()
    for reason in wait_for_end([ranks[0], ranks[2]]):
        assert "rank 1 (" in reason and "ended without an error message" in reason
    assert "see their output" in wait(ranks[0])[0].error


def test_a_straggler_is_named_with_its_status(start):
    def body(group):
        group._heartbeat.patient_until = 0
        group.set_status("reading step 7")
        if group.rank:
            start.hold()
        group.all_gather(0)

    ranks = [start(rank, 2, body, straggler_timeout=0.2) for rank in range(2)]
    for reason in wait_for_end(ranks):
        assert "rank 1 (" in reason and "has been reading step 7 for" in reason
        assert "train.straggler_timeout" in reason


def test_a_process_without_heartbeats_is_named(start):
    """Such as one that is suspended: its connections stay open."""

    def body(group):
        group._heartbeat.patient_until = 0
        group.all_gather(0)
        if group.rank:
            group._heartbeat._stopped.set()
            start.hold()
        group.all_gather(1)

    ranks = [start(rank, 2, body) for rank in range(2)]
    (reason,) = wait_for_end(ranks[:1])
    assert "no heartbeat from rank 1" in reason


def test_a_missed_deadline_names_the_missing_ranks(start):
    def body(group):
        if group.rank:
            start.hold()
        with group.time_limit(0.2, "a first all-reduce"):
            start.hold()

    ranks = [start(rank, 2, body) for rank in range(2)]
    for reason in wait_for_end(ranks):
        assert "a first all-reduce took more than 0 s: rank 1 (" in reason and "did not get this far" in reason


class Alone:
    """Group whose other ranks have nothing to tell."""

    def __init__(self, rank, size, announced=()):
        self.rank, self.size, self.announced = rank, size, list(announced)

    def concatenate(self, items):
        return [*self.announced, *items]


@pytest.mark.parametrize(
    "size, step, expected",
    [
        (16, 0.001, [1, 2, 3, 4, 5, 6]),
        (64, 0.0499, [1, 2, 14, 26, 38]),  # 0.64 s
        (1024, 0.0499, [1, 2, 207]),  # 10.24 s
        (1024, 20.0, [1, 2, 3, 4, 5, 6]),
        (64, 1e-9, [1, 2, 66, 130]),  # never more steps than ranks
    ],
)
def test_steps_after_which_ranks_exchange(monkeypatch, size, step, expected):
    polling, clock, found = Polling(Alone(0, size)), [0.0], []
    monkeypatch.setattr(groups, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    for done in range(1, expected[-1] + 1):
        clock[0] += step
        if polling.is_due(done):
            found.append(done)
            assert polling.exchange(done, [{"signal": 15}]) == [{"signal": 15}]
    assert found == expected


def test_the_other_ranks_follow_rank_0():
    polling = Polling(Alone(1, 64, announced=[3]))
    assert polling.exchange(1, [7]) == [7]
    assert [done for done in range(1, 6) if polling.is_due(done)] == [4, 5]
