"""Rendezvous, collectives and failures of real processes, without any framework."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.distributed.rendezvous import candidate_ports, connect
from zoo.trainer.world import Launch

PROGRAM = """
import json, sys, time
import numpy as np
from zoo.data.errors import UserError
from zoo.distributed import heartbeat, rendezvous
from zoo.distributed.rendezvous import connect
from zoo.trainer.world import Launch
heartbeat.HEARTBEAT_TIMEOUT, rendezvous.WAIT_REPORT = 3.0, 0.5
rank, size, address, job, timeout, straggler_timeout, body = sys.argv[1:]
rank, size = int(rank), int(size)
try:
    launch = Launch(rank, size, rank, "test", address=address, job=job)
    group = connect(launch, float(straggler_timeout), float(timeout))
    exec(body)
    group.close()
except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
"""


def start(rank, size, body="", job=None, address="127.0.0.1", timeout=20, straggler_timeout=60, before=""):
    job = job or f"{os.environ.get('PYTEST_CURRENT_TEST', '')} {os.getpid()}"
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            before + PROGRAM,
            *map(str, (rank, size, address, job, timeout, straggler_timeout, body)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def wait(process, timeout=30):
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


IMPATIENT = "if group._heartbeat: group._heartbeat.patient_until = 0\n"


def test_a_slow_rank_is_named_and_waited_for():
    """It joins late, and then stays behind for longer than a straggler may, at the beginning of the run."""
    body = "group.all_gather(0)\nif rank == 1: time.sleep(3.5)\nprint(group.all_gather(rank))"
    root = start(0, 2, body, job=f"slow {os.getpid()}", straggler_timeout=1)
    time.sleep(3)
    other = start(1, 2, body, job=f"slow {os.getpid()}", straggler_timeout=1)
    code, out, errors = wait(root)
    assert (code, out) == (0, "[0, 1]\n") and wait(other)[0] == 0
    assert "waiting for rank 1 of 2 to join (" in errors and "of at most 20 s)" in errors


def wait_until_joined(processes):
    """Wait until the processes have joined; then their bodies print a line."""
    assert [process.stdout.readline() for process in processes] == ["joined\n"] * len(processes)


def run_all(size, body, **options):
    return [wait(process) for process in [start(rank, size, body, **options) for rank in range(size)]]


def test_a_single_process_needs_no_connections():
    group = connect(Launch(), 1)
    assert group.all_gather({"a": 1}) == [{"a": 1}] and (group.rank, group.size) == (0, 1)
    assert group.sum({"x": np.arange(3)})["x"].tolist() == [0, 1, 2]
    with group.time_limit(0, "nothing"):
        group.set_status("idle")
    group.fail("no other process")
    group.close()


def test_all_gather_and_sum_are_the_same_on_all_ranks():
    body = (
        "print(json.dumps(group.all_gather([rank, 'ä' * 70000 * rank == '']))); "
        "total = group.sum({'f': np.array([0.1 * (rank + 1), 1e300]), 'n': np.array(2**60 + rank)}); "
        "print(total['f'].tolist(), total['f'].dtype, int(total['n']), total['n'].dtype, total['n'].shape)"
    )
    results = run_all(3, body)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert len({out for _, out, _ in results}) == 1
    first, second = results[0][1].splitlines()
    assert json.loads(first) == [[0, True], [1, False], [2, False]]
    assert second == f"{[0.1 + 0.2 + 0.1 * 3, 3e300]} float64 {3 * 2**60 + 3} int64 ()"


def test_concatenate_and_gather():
    body = (
        "print(group.concatenate([]), group.concatenate([rank] * (rank % 2) * 2), group.gather({'rank': rank}), "
        "group.concatenate([rank]), group.all_gather(rank))"
    )
    results = run_all(4, body)
    assert [code for code, _, _ in results] == [0] * 4, results
    for rank, (_, out, _) in enumerate(results):
        gathered = [{"rank": other} for other in range(4)] if rank == 0 else [{"rank": rank}]
        assert out == f"[] [1, 1, 3, 3] {gathered} [0, 1, 2, 3] [0, 1, 2, 3]\n"


def test_more_descriptors_than_select_takes():
    """The connections of rank 0 have descriptors above 1023; the failure of a rank is noticed nevertheless."""
    body = (
        "group.all_gather(0); print('joined', flush=True)\n"
        "if rank == 0: print(min(c.fileno() for c in group._connections.values()), flush=True)\n"
        "time.sleep(60)"
    )
    job = f"descriptors {os.getpid()}"
    root = start(0, 2, body, job=job, before="held = [open('/dev/null') for _ in range(1100)]")
    other = start(1, 2, body, job=job)
    wait_until_joined([root, other])
    assert int(root.stdout.readline()) > 1023
    other.kill()
    code, _, errors = wait(root, 15)
    assert code == 1 and "rank 1 (" in errors and "ended without an error message" in errors


def test_the_limit_of_open_files_is_raised_or_named():
    program = (
        "import resource; from zoo.distributed import rendezvous\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (600, 1200)); rendezvous.raise_file_limit(88)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)); rendezvous.raise_file_limit(600)\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)); rendezvous.raise_file_limit(700)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["(600, 1200)", "(1112, 1200)"]
    assert "UserError: rank 0 needs 1212 open files for its 700 connections, but this host allows 1200" in done.stderr


def test_two_runs_on_one_machine_do_not_mix():
    """Not even with the same ports: the handshake tells them apart."""
    jobs = ["a", "b"]
    body = "print(group.all_gather(sys.argv[4]))"
    processes = [start(rank, 2, f"import time; {body}", job=job) for job in jobs for rank in (1, 0)]
    outputs = [wait(process)[1].strip() for process in processes]
    assert outputs == ["['a', 'a']"] * 2 + ["['b', 'b']"] * 2


def bind(port):
    """Occupy a port without listening: connections are refused at once."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", port))
    return holder


def test_all_ports_in_use():
    job = f"full {os.getpid()}"
    with contextlib.ExitStack() as holders:
        for port in candidate_ports(Launch(0, 2, 0, "test", job=job)):
            holders.enter_context(bind(port))
        code, _, errors = wait(start(0, 2, job=job))
        assert code == 2 and "are all in use; choose another MASTER_PORT" in errors


def test_a_missing_rank_is_named():
    for process in [start(rank, 3, timeout=1) for rank in (0, 1)]:
        code, _, errors = wait(process)
        assert code == 2 and "rank 2 of 3 did not join rank 0 at 127.0.0.1 within 1 s" in errors


def test_without_rank_0_the_others_name_its_address():
    code, _, errors = wait(start(1, 2, timeout=1))
    assert code == 2 and "rank 1 on" in errors and "cannot reach rank 0 at 127.0.0.1, ports" in errors


@pytest.mark.parametrize(
    "ranks, message",
    [((0, 0), "two processes were started as rank 0"), ((0, 1, 1), "two processes were started as rank 1")],
)
def test_two_processes_of_the_same_rank(ranks, message):
    job = f"double {ranks} {os.getpid()}"
    processes = []
    for rank in ranks:
        processes.append(start(rank, 3, job=job, timeout=8))
        time.sleep(0.7)
    results = [wait(process) for process in processes]
    assert all(code == 2 and message in errors for code, _, errors in results), results


def test_different_world_sizes():
    job = f"sizes {os.getpid()}"
    results = [wait(process) for process in (start(0, 2, job=job), start(1, 3, job=job))]
    for code, _, errors in results:
        assert code == 2 and "was started as one of 3 processes" in errors and "as one of 2" in errors


@pytest.mark.parametrize(
    "address, message",
    [
        ("no-such-host.invalid", "gives 'no-such-host.invalid' as the host of rank 0"),
        ("a..b", "gives 'a..b' as the host of rank 0: "),
        ("203.0.113.7", "is not an address of"),
    ],
)
def test_a_wrong_address(address, message):
    code, _, errors = wait(start(0, 2, address=address))
    assert code == 2 and message in errors


def test_a_killed_process_ends_all_within_seconds():
    body = "group.all_gather(0); print('joined', flush=True); time.sleep(60)"
    processes = [start(rank, 3, body, job=f"killed {os.getpid()}") for rank in range(3)]
    wait_until_joined(processes)
    began = time.monotonic()
    processes[1].kill()
    for rank in (0, 2):
        code, _, errors = wait(processes[rank])
        assert code == 1 and "rank 1 (" in errors and "ended without an error message" in errors
    assert time.monotonic() - began < 5


def test_the_reason_of_a_failure_reaches_all_ranks():
    body = "group.all_gather(0)\nif rank == 2: group.fail('the disk is full'); sys.exit(2)\ngroup.all_gather(1)"
    results = run_all(3, body)
    assert [code for code, _, _ in results] == [1, 1, 2]
    assert all("error: rank 2 (" in errors and "the disk is full" in errors for _, _, errors in results[:2])


def test_a_straggler_is_named_with_its_status():
    body = f"{IMPATIENT}group.set_status('reading step 7')\nif rank == 1:\n    time.sleep(60)\ngroup.all_gather(0)"
    processes = [start(rank, 2, body, straggler_timeout=2, job=f"behind {os.getpid()}") for rank in range(2)]
    for process in processes:
        code, _, errors = wait(process, 15)
        assert code == 1 and "rank 1 (" in errors and "has been reading step 7 for" in errors


def test_a_process_without_heartbeats_is_named():
    body = f"{IMPATIENT}group.all_gather(0); print('joined', flush=True); time.sleep(60)"
    processes = [start(rank, 2, body, job=f"stopped {os.getpid()}") for rank in range(2)]
    wait_until_joined(processes)
    processes[1].send_signal(signal.SIGSTOP)
    code, _, errors = wait(processes[0], 15)
    processes[1].kill()
    assert code == 1 and "no heartbeat from rank 1" in errors


def test_a_missed_deadline_names_the_missing_ranks():
    body = "\nif rank == 1: time.sleep(60)\nwith group.time_limit(2, 'a first all-reduce'): time.sleep(60)"
    processes = [start(rank, 2, body, job=f"limit {os.getpid()}") for rank in range(2)]
    for process in processes:
        code, _, errors = wait(process, 15)
        assert code == 1 and "a first all-reduce took more than 2 s: rank 1 (" in errors
        assert "did not get this far" in errors
