"""Processes that meet, exchange and fail: real ones, without any framework."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.distributed.control_group import _ports, connect
from zoo.trainer.protocol import Launch

PROGRAM = """
import json, sys, time
import numpy as np
from data.errors import UserError
from zoo.trainer import watch
from zoo.distributed.control_group import connect
from zoo.trainer.protocol import Launch
watch.SILENCE = 3.0
rank, size, address, job, deadline, straggler_timeout, body = sys.argv[1:]
rank, size = int(rank), int(size)
try:
    group = connect(Launch(rank, size, rank, "test", address=address, job=job), float(straggler_timeout), float(deadline))
    exec(body)
    group.close()
except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
"""


def begin(rank, size, body="", job=None, address="127.0.0.1", deadline=20, straggler_timeout=60):
    job = job or f"{os.environ.get('PYTEST_CURRENT_TEST', '')} {os.getpid()}"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, (rank, size, address, job, deadline, straggler_timeout, body))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def ended(process, within=30):
    out, errors = process.communicate(timeout=within)
    return process.returncode, out, errors


def met(processes):
    """Wait until the processes have met; their bodies print a line then."""
    assert [process.stdout.readline() for process in processes] == ["met\n"] * len(processes)


def everyone(size, body, **more):
    return [ended(process) for process in [begin(rank, size, body, **more) for rank in range(size)]]


def test_alone_needs_nobody():
    group = connect(Launch(), 1)
    assert group.all_gather({"a": 1}) == [{"a": 1}] and (group.rank, group.size) == (0, 1)
    assert group.sum({"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
    with group.limit(0, "nothing"):
        group.set_status("rest")
    group.fail("nobody listens")
    group.close()


def test_gather_and_sum_are_the_same_everywhere():
    body = (
        "print(json.dumps(group.all_gather([rank, 'ä' * 70000 * rank == '']))); "
        "total = group.sum({'f': np.array([0.1 * (rank + 1), 1e300]), 'n': np.array(2**60 + rank)}); "
        "print(total['f'].tolist(), total['f'].dtype, int(total['n']), total['n'].dtype, total['n'].shape)"
    )
    results = everyone(3, body)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert len({out for _, out, _ in results}) == 1
    first, second = results[0][1].splitlines()
    assert json.loads(first) == [[0, True], [1, False], [2, False]]
    assert second == f"{[0.1 + 0.2 + 0.1 * 3, 3e300]} float64 {3 * 2**60 + 3} int64 ()"


def test_two_runs_on_one_machine_keep_apart():
    """Also if their ports are the same: then each finds its own by asking."""
    jobs = ["a", "b"]
    body = "print(group.all_gather(sys.argv[4]))"
    processes = [begin(rank, 2, f"import time; {body}", job=job) for job in jobs for rank in (1, 0)]
    outputs = [ended(process)[1].strip() for process in processes]
    assert outputs == ["['a', 'a']"] * 2 + ["['b', 'b']"] * 2


def test_ports_that_others_hold_are_passed_over():
    job = f"busy {os.getpid()}"
    ports = _ports(Launch(0, 2, 0, "test", job=job))
    holders = [socket.create_server(("127.0.0.1", port)) for port in ports[:2]]
    try:
        assert [code for code, _, _ in everyone(2, "group.all_gather(1)", job=job)] == [0, 0]
        holders += [socket.create_server(("127.0.0.1", port)) for port in ports[2:]]
        code, _, errors = ended(begin(0, 2, job=job))
        assert code == 2 and "are all in use; choose another MASTER_PORT" in errors
    finally:
        for holder in holders:
            holder.close()


def test_a_rank_that_never_comes_is_named():
    zero, one = begin(0, 3, deadline=2), begin(1, 3, deadline=2)
    for process in (zero, one):
        code, _, errors = ended(process)
        assert code == 2 and "rank 2 of 3 did not come within 2 s to rank 0 at 127.0.0.1" in errors


def test_without_rank_0_the_others_say_where_they_looked():
    code, _, errors = ended(begin(1, 2, deadline=1))
    assert code == 2 and "rank 1 on" in errors and "cannot reach rank 0 at 127.0.0.1, ports" in errors


@pytest.mark.parametrize(
    "ranks, words",
    [((0, 0), "two processes were started as rank 0"), ((0, 1, 1), "two processes were started as rank 1")],
)
def test_two_of_the_same_rank(ranks, words):
    job = f"double {ranks} {os.getpid()}"
    processes = []
    for rank in ranks:
        processes.append(begin(rank, 3, job=job, deadline=8))
        time.sleep(0.7)
    results = [ended(process) for process in processes]
    assert all(code == 2 and words in errors for code, _, errors in results), results


def test_different_opinions_about_the_number_of_processes():
    job = f"sizes {os.getpid()}"
    results = [ended(process) for process in (begin(0, 2, job=job), begin(1, 3, job=job))]
    assert all(code == 2 and "was told of 3 processes" in errors and "of 2" in errors for code, _, errors in results)


@pytest.mark.parametrize(
    "address, words",
    [
        ("no-such-host.invalid", "says that rank 0 is at 'no-such-host.invalid'"),
        ("203.0.113.7", "is not an address of"),
    ],
)
def test_a_wrong_address(address, words):
    code, _, errors = ended(begin(0, 2, address=address))
    assert code == 2 and words in errors


def test_a_killed_process_ends_all_within_seconds():
    body = "group.all_gather(0); print('met', flush=True); time.sleep(60)"
    processes = [begin(rank, 3, body, job=f"killed {os.getpid()}") for rank in range(3)]
    met(processes)
    began = time.monotonic()
    processes[1].kill()
    for rank in (0, 2):
        code, _, errors = ended(processes[rank])
        assert code == 1 and "rank 1 (" in errors and "ended without a word" in errors
    assert time.monotonic() - began < 5


def test_the_reason_of_one_is_told_to_all():
    body = "group.all_gather(0)\nif rank == 2:\n    group.fail('the disk is full')\n    sys.exit(2)\ngroup.gather(1)"
    results = everyone(3, body)
    assert [code for code, _, _ in results] == [1, 1, 2]
    assert all("error: rank 2 (" in errors and "the disk is full" in errors for _, _, errors in results[:2])


def test_a_process_that_stays_behind_is_named_with_what_it_did():
    body = "group.set_status('reading step 7')\nif rank == 1:\n    time.sleep(60)\ngroup.gather(0)"
    processes = [begin(rank, 2, body, straggler_timeout=2, job=f"behind {os.getpid()}") for rank in range(2)]
    for process in processes:
        code, _, errors = ended(process, 15)
        assert code == 1 and "rank 1 (" in errors and "has been reading step 7 for" in errors


def test_a_process_that_is_stopped_is_missed():
    body = "group.all_gather(0); print('met', flush=True); time.sleep(60)"
    processes = [begin(rank, 2, body, job=f"stopped {os.getpid()}") for rank in range(2)]
    met(processes)
    processes[1].send_signal(signal.SIGSTOP)
    code, _, errors = ended(processes[0], 15)
    processes[1].kill()
    assert code == 1 and "no sign of life from rank 1" in errors


def test_what_takes_too_long_names_who_did_not_come():
    body = "\nif rank == 1: time.sleep(60)\nwith group.limit(2, 'a first all-reduce'): time.sleep(60)"
    processes = [begin(rank, 2, body, job=f"limit {os.getpid()}") for rank in range(2)]
    for process in processes:
        code, _, errors = ended(process, 15)
        assert code == 1 and "a first all-reduce took more than 2 s: rank 1 (" in errors and "did not come" in errors


def test_processes_on_the_same_cores_share_them(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    body = "from zoo.trainer import environ as e; e.prepare(group); print(e.os.environ.get('OMP_NUM_THREADS'))"
    cores = len(os.sched_getaffinity(0))
    assert [out for _, out, _ in everyone(2, body)] == [f"{max(1, cores // 2)}\n"] * 2
    assert everyone(1, body)[0][1] == "None\n"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert [out for _, out, _ in everyone(2, body)] == ["7\n"] * 2


def test_strangers_at_the_door_do_no_harm():
    job = f"strangers {os.getpid()}"
    zero = begin(0, 2, "group.all_gather(0)", job=job)
    port = _ports(Launch(0, 2, 0, "test", job=job))[0]
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02[]", b""):
        for _ in range(50):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
                    link.sendall(greeting)
                break
            except OSError:
                time.sleep(0.1)
    one = begin(1, 2, "group.all_gather(0)", job=job)
    assert ended(zero)[0] == 0 and ended(one)[0] == 0


def test_many_exchanges_are_quick():
    """Threads of this process stand for processes: no interpreter starts here."""
    job, found = f"threads {os.getpid()}", {}

    def work(rank):
        group = connect(Launch(rank, 4, rank, "test", job=job), 60)
        found[rank] = [group.all_gather(number * 10 + rank) for number in range(200)]
        group.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(found[rank] == [[number * 10 + each for each in range(4)] for number in range(200)] for rank in range(4))
