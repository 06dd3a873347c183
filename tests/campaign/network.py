"""Hostile connections of every kind: while two ranks meet, and while runs of two processes train.

For a meeting, without a framework, rank 0 starts, then come the connections, and then rank 1, whose time to join is the
figure. Runs are attacked on all ports on which their processes listen, one after the other until there were enough
connections; each must end like an undisturbed one.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign import Trial
from tests.campaign.training import tiny
from tests.campaign.training.comparison import differences
from tests.campaign.training.strangers import Strangers
from tests.campaign.training.tiny import NAMES, Setup
from tests.helpers.paths import ROOT
from zoo.distributed.group import Group
from zoo.distributed.rendezvous import candidate_ports, connect
from zoo.distributed.wire import NONCE_SIZE, derive_key, sign
from zoo.trainer.world import Launch

COUNT = 1000  # connections of a trial, at least
MAX_RUNS = 40  # of a trial
MEETING = 200  # of them to one meeting: more than rank 0 keeps
JOIN_LIMIT = 2.0  # seconds
HELLO = {"rank": 1, "size": 2, "type": "control", "name": "a stranger"}

PROGRAM = str(ROOT / "train.py")

Attack = Callable[[socket.socket, bytes], None]  # (connection, key of the run); the connection stays open


def _idle(connection: socket.socket, _key: bytes) -> None:
    """Open a connection and say nothing."""


def _close(connection: socket.socket, _key: bytes) -> None:
    connection.close()


def _half(connection: socket.socket, _key: bytes) -> None:
    connection.sendall(b"\x00\x00\x01")


def _drip(connection: socket.socket, _key: bytes) -> None:
    for byte in struct.pack("!I", 64):
        connection.sendall(bytes([byte]))
        time.sleep(0.001)


def _http(connection: socket.socket, _key: bytes) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")


def _gigabytes(connection: socket.socket, _key: bytes) -> None:
    connection.sendall(struct.pack("!I", (1 << 30) - 1) + b"x" * 10000)


def _deep(connection: socket.socket, _key: bytes) -> None:
    _send(connection, b"[" * 4000)


def _stranger(connection: socket.socket, _key: bytes) -> None:
    """A hello of rank 1 by a process with another key."""
    _send_hello(connection, secrets.token_bytes(32), json.dumps(HELLO))


def _replay(connection: socket.socket, key: bytes) -> None:
    """A hello that was valid on another connection."""
    body = secrets.token_bytes(NONCE_SIZE) + json.dumps(HELLO).encode()
    _send(connection, sign(key, secrets.token_bytes(NONCE_SIZE), body) + body)


def _signed(text: str) -> Attack:
    """Return an attack by a process that knows the key: what an old or broken version might send."""
    return lambda connection, key: _send_hello(connection, key, text)


def _abandoned(connection: socket.socket, key: bytes) -> None:
    """A complete hello of rank 1, whose process then ends."""
    _send_hello(connection, key, json.dumps(HELLO))
    connection.close()


ATTACKS: dict[str, Attack] = {
    "idle": _idle,
    "closed": _close,
    "half a length": _half,
    "drips": _drip,
    "HTTP": _http,
    "claimed gigabytes": _gigabytes,
    "deep JSON": _deep,
    "another secret": _stranger,
    "repeated hello": _replay,
    "abandoned rank": _abandoned,
    "signed deep JSON": _signed("[" * 3900),
    "signed Infinity": _signed(json.dumps({**HELLO, "rank": float("inf")})),
    "signed rank 7 of 2": _signed(json.dumps({**HELLO, "rank": 7})),
    "signed rank -1": _signed(json.dumps({**HELLO, "rank": -1})),
    "signed list": _signed("[1]"),
    "signed unknown type": _signed(json.dumps({**HELLO, "type": ["control"]})),
}
IN_RUNS = ("idle", "closed", "half a length", "drips", "HTTP", "claimed gigabytes", "deep JSON", "another secret")
RUNS = {f"{name}, while {NAMES[framework]} trains": (name, framework) for framework in NAMES for name in IN_RUNS}
KINDS = (*ATTACKS, *RUNS)


def trial(number: int, folder: Path, count: int = COUNT) -> Trial:
    """Attack meetings or runs.

    Args:
        number: of the trial.
        folder: for the runs; the undisturbed ones are kept beside it.
        count: connections, at least.
    """
    kind = KINDS[number % len(KINDS)]
    if kind in ATTACKS:
        meetings = [
            _meet(f"{folder} {number} {os.getpid()} {first}", kind, min(MEETING, count - first))
            for first in range(0, count, MEETING)
        ]
        failures = [line for errors, _ in meetings for line in errors]
        figures = {"seconds to join": max(seconds for _, seconds in meetings)}
    else:
        count, failures, figures = *_train(kind, folder, count), {}
        if failures:
            tiny.keep(folder, number)
    return Trial(kind, count, [f"trial {number} ({kind}): {line}" for line in failures], figures)


def _meet(job: str, kind: str, count: int) -> tuple[list[str], float]:
    """Let two ranks meet under attack; return what went wrong, and the seconds that rank 1 took to join."""
    gathered: dict[int, list[list[int]]] = {}
    errors: list[str] = []

    def work(rank: int) -> None:
        try:
            group: Group = connect(Launch(rank, 2, rank, "test", job=job), 60, timeout=15)
            gathered[rank] = [group.all_gather(step + rank) for step in range(3)]
            group.close()
        except Exception as error:  # any harm is reported
            errors.append(f"rank {rank}: {error!r}")

    root, other = (threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(2))
    key = derive_key(job, os.environ)
    root.start()
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", _wait_for_port(job))
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address, timeout=2))
            with contextlib.suppress(OSError):  # dropped while it was speaking
                ATTACKS[kind](connection, key)
        began = time.monotonic()
        other.start()
        for thread in (root, other):
            thread.join(20)
        seconds = time.monotonic() - began
    if errors or [gathered.get(rank) for rank in range(2)] != [[[0, 1], [1, 2], [2, 3]]] * 2:
        errors.append(f"exchanged {gathered}")
    if seconds > JOIN_LIMIT:
        errors.append(f"joined after {seconds:.1f} s")
    return errors, seconds


def _train(kind: str, folder: Path, count: int) -> tuple[int, list[str]]:
    """Attack runs of two processes until there were enough connections, or one did harm.

    Returns:
        the number of connections, and what differs from an undisturbed run.
    """
    done, failures, runs = 0, list[str](), 0
    while done < count and not failures:
        connections, failures = _attack_run(kind, folder, folder / f"run-{runs}")
        done, runs = done + connections, runs + 1
        if runs == MAX_RUNS and done < count:
            failures.append(f"only {done} connections to {runs} runs")
    return done, failures


def _attack_run(kind: str, folder: Path, run: Path) -> tuple[int, list[str]]:
    """Attack a run of two processes; return the number of connections, and what differs from an undisturbed run."""
    name, framework = RUNS[kind]
    setup = Setup(framework, 2)
    undisturbed = tiny.reference(setup, folder.parent)
    process = subprocess.Popen(
        tiny.command(setup, [PROGRAM, *tiny.arguments(setup, folder.parent), "--out", str(run)], folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # frameworks print what strangers send
        cwd=ROOT,
        env=tiny.environment(),
        start_new_session=True,
    )
    # Gloo as Paddle has it takes any first connection to a port for the rank that it waits for.
    begins = (run / "events.jsonl").exists if framework == "paddle" else lambda: True
    key = secrets.token_bytes(32)
    strangers = Strangers(process, PROGRAM, lambda connection: ATTACKS[name](connection, key), begins)
    strangers.start()
    try:
        text, _ = process.communicate(timeout=tiny.TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    strangers.join()
    if process.returncode:
        return strangers.count, [f"exit code {process.returncode}: {text[-2000:]}"]
    return strangers.count, differences(run, undisturbed.folder)


def _wait_for_port(job: str) -> int:
    """Return the port on which rank 0 listens."""
    ports = candidate_ports(Launch(0, 2, 0, "test", job=job))
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[0]), timeout=1):
            return ports[0]
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {ports[0]}")


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(struct.pack("!I", len(message)) + message)


def _send_hello(connection: socket.socket, key: bytes, text: str) -> None:
    """Send a hello that is signed with the nonce of rank 0; other ports give none."""
    nonce = connection.recv(4 + NONCE_SIZE, socket.MSG_WAITALL)[4:]
    body = secrets.token_bytes(NONCE_SIZE) + text.encode()
    _send(connection, sign(key, nonce, body) + body)
