"""Hostile connections of every kind while two ranks meet, without a framework: the ranks join nevertheless.

Each trial starts rank 0, opens the connections, and then starts rank 1, whose time to join is the figure.
"""

import contextlib
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign import Trial
from zoo.distributed.addresses import candidate_ports
from zoo.distributed.control_group import Group
from zoo.distributed.handshake import NONCE_SIZE
from zoo.distributed.rendezvous import connect
from zoo.distributed.secret import derive_key, sign
from zoo.trainer.protocol import Launch

COUNT = 200  # connections per trial: more than rank 0 keeps
JOIN_LIMIT = 2.0  # seconds
HELLO = {"rank": 1, "size": 2, "type": "control", "name": "a stranger"}

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
KINDS = tuple(ATTACKS)


def trial(number: int, folder: Path, count: int = COUNT) -> Trial:
    """Let two ranks meet under `count` hostile connections of one kind. folder: not used, all is in memory."""
    kind = KINDS[number % len(KINDS)]
    job = f"{folder} {number} {os.getpid()}"
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
    return Trial(kind, count, [f"trial {number}: {error}" for error in errors], {"seconds to join": seconds})


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
    """Send a hello that is signed with the nonce of rank 0."""
    nonce = connection.recv(4 + NONCE_SIZE, socket.MSG_WAITALL)[4:]
    body = secrets.token_bytes(NONCE_SIZE) + text.encode()
    _send(connection, sign(key, nonce, body) + body)
