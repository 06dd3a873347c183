"""Hostile connections of every kind: while two ranks meet, and while runs of two processes train.

For a meeting, without a framework, rank 0 starts, then come the connections, and then rank 1, whose time to join is the
figure. Runs are attacked on all ports on which their processes listen, one after the other until there were enough
connections; each must end like an undisturbed one.
"""

import contextlib
import itertools
import json
import os
import secrets
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tests.campaign import Trial, tiny
from tests.campaign.tiny import NAMES, Setup, differences
from tests.helpers.paths import ROOT
from zoo.distributed.group import Group
from zoo.distributed.rendezvous import candidate_ports, connect
from zoo.distributed.wire import NONCE_SIZE, derive_key, sign
from zoo.trainer.world import Launch

COUNT = 1000  # connections of a trial, at least
MAX_RUNS = 40  # of a trial
MEETING = 200  # of them to one meeting
JOIN_LIMIT = 2.0  # seconds
HELLO = {"rank": 1, "size": 2, "type": "control", "name": "a stranger"}

PROGRAM = str(ROOT / "train.py")
MAX_OPEN = 300  # connections to a run that are kept open
CONNECT_TIMEOUT = 0.05  # seconds to connect to a run, and for an answer; other processes of this machine need less
PAUSE = 0.001  # seconds between two connections to a run, and between two looks for its ports

Attack = Callable[[socket.socket, bytes], None]  # (connection, key of the run); the connection stays open


def _says(content: bytes) -> Attack:
    return lambda connection, key: connection.sendall(content)


def _drip(connection: socket.socket, _key: bytes) -> None:
    for byte in struct.pack("!I", 64):
        connection.sendall(bytes([byte]))
        time.sleep(0.001)


def _replay(connection: socket.socket, key: bytes) -> None:
    """A hello that was valid on another connection."""
    body = secrets.token_bytes(NONCE_SIZE) + json.dumps(HELLO).encode()
    connection.sendall(_message(sign(key, secrets.token_bytes(NONCE_SIZE), body) + body))


def _signed(text: str, is_stranger: bool = False) -> Attack:
    """Return a hello that is signed with the nonce of rank 0: what an old or broken version might send.

    is_stranger: whether the process has another key.
    """

    def attack(connection: socket.socket, key: bytes) -> None:
        nonce = connection.recv(4 + NONCE_SIZE, socket.MSG_WAITALL)[4:]  # other ports give none
        body = secrets.token_bytes(NONCE_SIZE) + text.encode()
        connection.sendall(_message(sign(secrets.token_bytes(32) if is_stranger else key, nonce, body) + body))

    return attack


def _abandoned(connection: socket.socket, key: bytes) -> None:
    """A complete hello of rank 1, whose process then ends."""
    _signed(json.dumps(HELLO))(connection, key)
    connection.close()


def _message(content: bytes) -> bytes:
    return struct.pack("!I", len(content)) + content


ATTACKS: dict[str, Attack] = {
    "idle": _says(b""),
    "closed": lambda connection, key: connection.close(),
    "half a length": _says(b"\x00\x00\x01"),
    "drips": _drip,
    "HTTP": _says(b"GET / HTTP/1.1\r\n\r\n"),
    "claimed gigabytes": _says(struct.pack("!I", (1 << 30) - 1) + b"x" * 10000),
    "deep JSON": _says(_message(b"[" * 4000)),
    "another secret": _signed(json.dumps(HELLO), is_stranger=True),
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
    program = [PROGRAM, *tiny.arguments(setup, folder.parent), "--out", str(run)]
    process = tiny.start(setup, program, folder)
    # Gloo as Paddle has it takes any first connection to a port for the rank that it waits for.
    begins = (run / "events.jsonl").exists if framework == "paddle" else lambda: True
    strangers = Strangers(process, ATTACKS[name], begins)
    strangers.start()
    code, text = tiny.finish(process)
    strangers.join()
    if code != 0:
        return strangers.count, [f"exit code {code}: {text}"]
    return strangers.count, differences(run, undisturbed.folder)


def _wait_for_port(job: str) -> int:
    """Return the port on which rank 0 listens."""
    ports = candidate_ports(Launch(0, 2, 0, "test", job=job))
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[0]), timeout=1):
            return ports[0]
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {ports[0]}")


class Strangers(threading.Thread):
    """Connects to each port of a run again and again, until the run has ended.

    Attributes:
        count: connections so far.
    """

    def __init__(self, launcher: subprocess.Popen[str], attack: Attack, begins: Callable[[], bool]):
        """Start nothing yet. begins: whether to connect already."""
        super().__init__(daemon=True)
        self.count = 0
        self._launcher, self._attack, self._begins = launcher, attack, begins

    def run(self) -> None:
        key, opened = secrets.token_bytes(32), deque[socket.socket]()
        for address in self._addresses():
            time.sleep(PAUSE)
            try:
                connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT)
            except OSError:  # it listens no more, or its queue is full
                continue
            self.count += 1
            opened.append(connection)
            with contextlib.suppress(OSError):  # dropped while it was speaking
                self._attack(connection, key)
            if len(opened) > MAX_OPEN:
                opened.popleft().close()
        for connection in opened:
            connection.close()

    def _addresses(self) -> Iterator[tuple[str, int]]:
        """Yield the addresses where ranks listen now, in turns, until the run has ended."""
        while self._launcher.poll() is None:
            found = listening(self._launcher.pid) if self._begins() else []
            if not found:
                time.sleep(PAUSE)
            yield from itertools.chain.from_iterable([found] * 4)  # looking is slower than connecting


def listening(launcher: int) -> list[tuple[str, int]]:
    """Return the addresses on which the ranks of a run, and what they have started, listen."""
    found = []
    for process in _ranks(launcher):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(connection.laddr.ip, connection.laddr.ip)
                    found.append((host, connection.laddr.port))
    return sorted(set(found))


def _ranks(launcher: int) -> Iterator[psutil.Process]:
    """Yield the processes that run train.py, and all that they have started.

    A process that the launcher has forked is none before it runs a program of its own: until then its command line and
    ports are the launcher's.
    """
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(launcher)
        for process in parent.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.exe() != parent.exe() and any(PROGRAM in word for word in process.cmdline()):
                    yield process
                    yield from process.children(recursive=True)
