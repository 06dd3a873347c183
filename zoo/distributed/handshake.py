"""Handshake between rank 0 and another rank: each proves to the other that it knows the key of the run.

Rank 0 sends a nonce. The other rank answers with a hello: its own nonce, its description as JSON, and an HMAC of both
with the nonce of rank 0. Every reply of rank 0 carries an HMAC with the nonce of the other rank.
"""

import json
import secrets
import socket
import time
from typing import Any, NamedTuple

from zoo.distributed.secret import is_signed, sign
from zoo.distributed.wire import ConnectionLost, receive, send

NONCE_SIZE, CODE_SIZE = 16, 32  # bytes
MAX_HELLO_SIZE = 4096  # bytes, with its length
HELLO_TIMEOUT = 2.0  # seconds from the first byte to the last
TYPES = ("control", "heartbeat")  # the two connections of a rank


class Hello(NamedTuple):
    """Description of a connecting process. type: one of TYPES; name: rank, host and process, for messages."""

    rank: int
    size: int
    type: str
    name: str


class Arrival:
    """Connection to rank 0 whose hello has not arrived completely. It never blocks.

    Args:
        connection: as accepted; receives the nonce at once.
        key: of the run.
        timeout: seconds until the hello must be complete.
    """

    def __init__(self, connection: socket.socket, key: bytes, timeout: float = HELLO_TIMEOUT):
        self.connection, self.end = connection, time.monotonic() + timeout
        self.peer_nonce = b""
        self._key, self._nonce, self._buffer = key, secrets.token_bytes(NONCE_SIZE), b""
        connection.setblocking(False)
        send(connection, self._nonce)

    def read(self) -> Hello | None:
        """Read what has come; return the hello once it is complete.

        Raises:
            ConnectionLost: The peer is gone, or not a process of this run.
        """
        try:
            chunk = self.connection.recv(MAX_HELLO_SIZE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        self._buffer += chunk
        size = int.from_bytes(self._buffer[:4], "big") if len(self._buffer) >= 4 else 0
        if not chunk or size > MAX_HELLO_SIZE - 4 or len(self._buffer) > max(4 + size, 4):
            raise ConnectionLost("not a hello")
        if len(self._buffer) < 4 or len(self._buffer) < 4 + size:
            return None
        message = self._buffer[4:]
        code, body = message[:CODE_SIZE], message[CODE_SIZE:]
        if not is_signed(self._key, self._nonce, body, code):
            raise ConnectionLost("without the secret of this run")
        self.peer_nonce = body[:NONCE_SIZE]
        return _parse(body[NONCE_SIZE:])


def greet(connection: socket.socket, key: bytes, hello: Hello, end: float) -> bytes:
    """Send a hello to rank 0, and return the nonce with which its replies are signed. end: monotonic clock, seconds."""
    nonce, own = receive(connection, NONCE_SIZE, end), secrets.token_bytes(NONCE_SIZE)
    body = own + json.dumps(hello._asdict()).encode()
    send(connection, sign(key, nonce, body) + body)
    return own


def send_reply(connection: socket.socket, key: bytes, nonce: bytes, reply: dict[str, Any]) -> None:
    """Send a reply of rank 0. nonce: of the other rank."""
    body = json.dumps(reply).encode()
    send(connection, sign(key, nonce, body) + body)


def receive_reply(connection: socket.socket, key: bytes, nonce: bytes, end: float) -> dict[str, Any]:
    """Receive a reply of rank 0. Raises ConnectionLost if none comes until `end`, or one from another program."""
    message = receive(connection, MAX_HELLO_SIZE, end)
    code, body = message[:CODE_SIZE], message[CODE_SIZE:]
    if not is_signed(key, nonce, body, code):
        raise ConnectionLost("what listens there does not know the secret of this run")
    reply: dict[str, Any] = json.loads(body)
    return reply


def _parse(body: bytes) -> Hello:
    """Return the hello in JSON. Raises ConnectionLost if it is none."""
    try:
        hello = Hello(**json.loads(body))
    except (ValueError, TypeError, RecursionError):
        raise ConnectionLost("not a hello") from None
    if type(hello.rank) is not int or type(hello.size) is not int or not 0 <= hello.rank < max(hello.size, 1):
        raise ConnectionLost("not a rank")
    if hello.type not in TYPES or type(hello.name) is not str:
        raise ConnectionLost("not a hello")
    return hello
