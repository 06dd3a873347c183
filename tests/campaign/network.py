"""Hostile connections of every kind: while two ranks meet, and while runs of two processes train.

For a meeting, without a framework, rank 0 starts, then come the connections, and then rank 1, whose time to join is the
figure. The connecting side meets a hostile program that listens on the port that rank 0 prefers. Runs are attacked on
all ports on which their processes listen, one after the other until there were enough connections; each must end like
an undisturbed one.
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
from zoo.distributed import wire
from zoo.distributed.group import Group
from zoo.distributed.rendezvous import candidate_ports, connect
from zoo.distributed.wire import HELLO_TIMEOUT, NONCE_SIZE, derive_key, sign
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
    connection.sendall(_message(sign(key, wire.HELLO, secrets.token_bytes(NONCE_SIZE), body) + body))


def _signed(text: str, is_stranger: bool = False) -> Attack:
    """Return a hello that is signed with the nonce of rank 0: what an old or broken version might send.

    is_stranger: whether the process has another key.
    """

    def attack(connection: socket.socket, key: bytes) -> None:
        nonce = connection.recv(4 + NONCE_SIZE, socket.MSG_WAITALL)[4:]  # other ports give none
        body = secrets.token_bytes(NONCE_SIZE) + text.encode()
        connection.sendall(
            _message(sign(secrets.token_bytes(32) if is_stranger else key, wire.HELLO, nonce, body) + body)
        )

    return attack


def _answers_by(key: bytes, connection: socket.socket) -> None:
    """Answer a hello as rank 0 of another run does."""
    connection.sendall(_message(secrets.token_bytes(NONCE_SIZE)))
    connection.recv(4096)
    wire.Channel(connection, key, wire.ROOT).send(b'{"accepted": 9}')


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


def _answers(content: Attack) -> Attack:
    """Return an answer to a hello by a program that knows the key, such as a broken version."""

    def attack(connection: socket.socket, key: bytes) -> None:
        _, channel = wire.receive_hello(connection, key, time.monotonic() + HELLO_TIMEOUT)
        content(channel.socket, channel._key)

    return attack


def _reply(text: str) -> Attack:
    return _answers(lambda connection, key: wire.Channel(connection, key, wire.ROOT).send(text.encode()))


def _reflects(nonce: bytes, without_nonce: bool = False) -> Attack:
    """Send a nonce, and the hello that answers back as if it were a reply, whole or without its own nonce."""

    def attack(connection: socket.socket, _key: bytes) -> None:
        connection.sendall(_message(nonce))
        hello = connection.recv(4096)[4:]
        own = NONCE_SIZE if without_nonce else 0
        connection.sendall(_message(hello[: wire.CODE_SIZE] + hello[wire.CODE_SIZE + own :]))

    return attack


# What listens in the place of rank 0, to which rank 1 and another rank 0 connect.
LISTENERS: dict[str, Attack] = {
    "silent listener": _says(b""),
    "listener that closes": lambda connection, key: connection.close(),
    "listener that says HTTP": _says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "reflected hello": _reflects(secrets.token_bytes(NONCE_SIZE)),
    "empty nonce and reflected hello": _reflects(b""),
    "empty nonce and reflected hello without its nonce": _reflects(b"", without_nonce=True),
    "short nonce and reflected hello": _reflects(b"\0"),
    "claimed gigabytes of a nonce": _says(struct.pack("!I", (1 << 30) - 1) + b"x" * 10000),
    "another secret behind a nonce": lambda connection, key: _answers_by(secrets.token_bytes(32), connection),
    "signed reply without a name": _reply("{}"),
    "signed reply of another name": _reply('{"type": "control"}'),
    "signed reply of a list": _reply("[1]"),
    "signed reply of deep JSON": _reply("[" * 3900),
    "signed reply of infinite time": _reply('{"accepted": Infinity}'),
    "signed reply of no time": _reply('{"accepted": "soon"}'),
    "signed refusal without a reason": _reply('{"refused": null}'),
    "joined too early": _reply(json.dumps(wire.ALL_JOINED)),
}
IN_RUNS = ("idle", "closed", "half a length", "drips", "HTTP", "claimed gigabytes", "deep JSON", "another secret")
RUNS = {f"{name}, while {NAMES[framework]} trains": (name, framework) for framework in NAMES for name in IN_RUNS}
KINDS = (*ATTACKS, *LISTENERS, *RUNS)


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
    elif kind in LISTENERS:
        count, failures, seconds = _meet_elsewhere(f"{folder} {number} {os.getpid()}", kind)
        figures = {"seconds to join past a listener": seconds}
    else:
        count, failures, figures = *_train(kind, folder, count), {}
        if failures:
            tiny.keep(folder, number)
    return Trial(kind, count, [f"trial {number} ({kind}): {line}" for line in failures], figures)


class Meeting:
    """Two ranks, as threads, that exchange some values.

    Attributes:
        root, other: the threads.
        errors: what went wrong.
    """

    def __init__(self, job: str):
        """Start nothing yet."""
        self.job, self.errors, self._gathered = job, list[str](), dict[int, list[list[int]]]()
        self.root, self.other = (threading.Thread(target=self._work, args=(rank,), daemon=True) for rank in range(2))

    def _work(self, rank: int) -> None:
        try:
            group: Group = connect(Launch(rank, 2, rank, "test", job=self.job), 60, timeout=15)
            self._gathered[rank] = [group.all_gather(step + rank) for step in range(3)]
            group.close()
        except Exception as error:  # any harm is reported
            self.errors.append(f"rank {rank}: {error!r}")

    def finish(self, began: float, limit: float) -> float:
        """Wait for both, and return the seconds that this took; `limit` is how many it may take."""
        for thread in (self.root, self.other):
            thread.join(20)
        seconds = time.monotonic() - began
        if self.errors or [self._gathered.get(rank) for rank in range(2)] != [[[0, 1], [1, 2], [2, 3]]] * 2:
            self.errors.append(f"exchanged {self._gathered}")
        if seconds > limit:
            self.errors.append(f"joined after {seconds:.1f} s")
        return seconds


def _meet(job: str, kind: str, count: int) -> tuple[list[str], float]:
    """Let two ranks meet under attack; return what went wrong, and the seconds that rank 1 took to join."""
    meeting, key = Meeting(job), derive_key(job, os.environ)
    meeting.root.start()
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", _wait_for_port(job))
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address, timeout=2))
            with contextlib.suppress(OSError):  # dropped while it was speaking
                ATTACKS[kind](connection, key)
        began = time.monotonic()
        meeting.other.start()
        return meeting.errors, meeting.finish(began, JOIN_LIMIT)


def _meet_elsewhere(job: str, kind: str) -> tuple[int, list[str], float]:
    """Let two ranks meet while something else listens on their first port.

    Returns:
        the number of its connections, what went wrong, and the seconds that both took to meet.
    """
    meeting, key, count = Meeting(job), derive_key(job, os.environ), 0
    port = candidate_ports(Launch(0, 2, 0, "test", job=job))[0]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", port)))

        def serve() -> None:
            nonlocal count
            with contextlib.suppress(OSError):  # the meeting is over
                while True:
                    connection = stack.enter_context(server.accept()[0])
                    count += 1
                    with contextlib.suppress(OSError, wire.ConnectionLost):
                        LISTENERS[kind](connection, key)

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        meeting.root.start()
        meeting.other.start()
        seconds = meeting.finish(began, JOIN_LIMIT + 2 * HELLO_TIMEOUT)
        server.shutdown(socket.SHUT_RDWR)
    return count, meeting.errors, seconds


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
