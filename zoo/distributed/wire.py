"""Messages over TCP between the processes of a run, and the handshake by which both sides prove that they belong to it.

A message is a 4-byte big-endian length and the payload. Rank 0 sends a nonce to whoever connects. The other rank
answers with a hello: its own nonce, its description as JSON, and a code (keyed BLAKE2b) of both with the nonce of
rank 0. The key follows from the secret of the start (docs/reliability.md). All that follows on this connection, the
replies of rank 0 first, is signed with a key of both nonces, the side that sends it and its number there: what somebody
in between changes, repeats, leaves out or sends back is a lost connection.
"""

import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from zoo.data.errors import UserError

MAX_MESSAGE_SIZE = 1 << 30  # bytes; a larger length means that the peer speaks another protocol
VARIABLE = "ZOO_SECRET"  # set by `zoo launch`, anew for each start
FILE = ".zoo-secret"  # in the home folder, for starts without `zoo launch`
MAX_FILE_SIZE = 4096  # bytes
NONCE_SIZE, CODE_SIZE = 16, 32  # bytes
MAX_HELLO_SIZE = 4096  # bytes, with its length
HELLO_TIMEOUT = 2.0  # seconds from the first byte to the last
MAX_WAIT = 1e6  # seconds that rank 0 may still wait for others
ALL_JOINED = {"all_joined": True}  # the last reply of rank 0
CONTROL, HEARTBEAT = "control", "heartbeat"  # the two connections of a rank
HELLO, SESSION = b"hello:", b"session:"  # what is signed with the key of the run
ROOT, RANK = b"root:", b"rank:"  # what is signed with the key of a connection, by the side that sends it


class ConnectionLost(Exception):
    """The peer closed the connection, timed out, or sent something that is not a message."""


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message. Raises ConnectionLost."""
    try:
        connection.sendall(struct.pack("!I", len(message)) + message)
    except OSError as error:
        raise ConnectionLost(str(error)) from None


def receive(connection: socket.socket, limit: int = MAX_MESSAGE_SIZE, end: float | None = None) -> bytes:
    """Wait for the next message and return it. Raises ConnectionLost.

    Args:
        limit: bytes that the message may have.
        end: time of the monotonic clock, in seconds, until which the whole message must be here.
    """
    (length,) = struct.unpack("!I", _receive_exactly(connection, 4, end))
    if length > limit:
        raise ConnectionLost("not a message")
    return _receive_exactly(connection, length, end)


def _receive_exactly(connection: socket.socket, count: int, end: float | None) -> bytes:
    buffer = bytearray()
    while len(buffer) < count:
        try:
            if end is not None:
                connection.settimeout(max(end - time.monotonic(), 0.001))
            chunk = connection.recv(count - len(buffer))
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if not chunk:
            raise ConnectionLost("closed")
        buffer += chunk
    return bytes(buffer)


def derive_key(job: str, environ: Mapping[str, str]) -> bytes:
    """Return the key of a run, 32 bytes: of ZOO_SECRET, else of the file in the home folder, else of the job alone.

    Args:
        job: identifiers of one start by the launcher; they are part of every key.
    """
    secret = environ.get(VARIABLE, "").encode() or _read_file(Path(environ.get("HOME") or "/nonexistent") / FILE)
    return hmac.digest(secret, job.encode(), hashlib.sha256)


def sign(key: bytes, label: bytes, *parts: bytes) -> bytes:
    """Return the code, 32 bytes, of a message. label: what is signed, so that nothing passes for something else."""
    return hashlib.blake2b(b"".join((label, *parts)), digest_size=CODE_SIZE, key=key).digest()


def verified(message: bytes, key: bytes, label: bytes, *before: bytes) -> bytes:
    """Return a message without its code. Raises ConnectionLost if that is another than that of `sign`."""
    code, body = message[:CODE_SIZE], message[CODE_SIZE:]
    if not hmac.compare_digest(sign(key, label, *before, body), code):
        raise ConnectionLost("without the secret of this run, or not what was sent")
    return body


class Channel:
    """A connection after its hello, by a blocking socket: messages in both directions, each with a code.

    side: ROOT or RANK, whose messages are sent here.
    """

    def __init__(self, connection: socket.socket, key: bytes, side: bytes):
        self.socket, self._key = connection, key
        self._own, self._other = (ROOT, RANK) if side == ROOT else (RANK, ROOT)
        self._sent = self._received = 0  # messages
        self._reader: BinaryIO | None = None

    def send(self, message: bytes) -> None:
        """Send one message. Raises ConnectionLost if the peer is gone."""
        code = sign(self._key, self._own, self._sent.to_bytes(8), message)
        self._sent += 1
        send(self.socket, code + message)

    def receive(self, limit: int = MAX_MESSAGE_SIZE, end: float | None = None) -> bytes:
        """Wait for the next message and return it; limit, end and errors are those of `receive`."""
        return self._verified(receive(self.socket, limit, end))

    def read(self) -> bytes:
        """Wait for the next message like `receive`, with half the system calls; then nothing else may receive."""
        if self._reader is None:
            self._reader = self.socket.makefile("rb")
        try:
            header = self._reader.read(4)
            length = int.from_bytes(header, "big")
            message = self._reader.read(length) if len(header) == 4 and length <= MAX_MESSAGE_SIZE else b""
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if len(header) < 4 or len(message) < length:
            raise ConnectionLost("closed, or not a message")
        return self._verified(message)

    def _verified(self, message: bytes) -> bytes:
        number = self._received.to_bytes(8)
        self._received += 1
        return verified(message, self._key, self._other, number)


def _read_file(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UserError(f"{path}: has to be a file of yours that nobody else may read; `chmod 600 {path}`")
        with open(path, "rb") as file:
            return file.read(MAX_FILE_SIZE).strip()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


class Hello(NamedTuple):
    """Description of a connecting process. type: CONTROL or HEARTBEAT; name: rank, host and process, for messages."""

    rank: int
    size: int
    type: str
    name: str


def receive_hello(connection: socket.socket, key: bytes, end: float) -> tuple[Hello, Channel]:
    """Send a nonce to whoever has connected, and return the hello that answers until `end`, as in `receive`.

    Raises:
        ConnectionLost: The peer is gone or late, or not a process of this run.
    """
    nonce = secrets.token_bytes(NONCE_SIZE)
    send(connection, nonce)
    body = verified(receive(connection, MAX_HELLO_SIZE, end), key, HELLO, nonce)
    hello = _parse(body[NONCE_SIZE:])
    return hello, Channel(connection, sign(key, SESSION, nonce, body[:NONCE_SIZE]), ROOT)


def greet(connection: socket.socket, key: bytes, hello: Hello, end: float) -> Channel:
    """Send a hello to rank 0. end: time of the monotonic clock, in seconds. Raises ConnectionLost."""
    nonce, own = receive(connection, NONCE_SIZE, end), secrets.token_bytes(NONCE_SIZE)
    if len(nonce) != NONCE_SIZE:
        raise ConnectionLost("not a nonce")
    body = own + json.dumps(hello._asdict()).encode()
    send(connection, sign(key, HELLO, nonce, body) + body)
    return Channel(connection, sign(key, SESSION, nonce, own), RANK)


def receive_reply(channel: Channel, end: float) -> dict[str, Any]:
    """Receive a reply of rank 0: ALL_JOINED, {"accepted": seconds left} or {"refused": reason}.

    Raises:
        ConnectionLost: None comes until `end`, or something else.
    """
    try:
        reply = json.loads(channel.receive(MAX_HELLO_SIZE, end))
        [(name, value)] = reply.items()
    except (ValueError, AttributeError, RecursionError):
        raise ConnectionLost("not a reply") from None
    is_time = type(value) in (int, float) and 0 <= value <= MAX_WAIT
    if reply != ALL_JOINED and not (name == "accepted" and is_time) and not (name == "refused" and type(value) is str):
        raise ConnectionLost("not a reply")
    return dict(reply)


def _parse(body: bytes) -> Hello:
    """Return the hello in JSON. Raises ConnectionLost if it is none."""
    try:
        hello = Hello(**json.loads(body))
    except (ValueError, TypeError, RecursionError):
        raise ConnectionLost("not a hello") from None
    if type(hello.rank) is not int or type(hello.size) is not int or not 0 <= hello.rank < max(hello.size, 1):
        raise ConnectionLost("not a rank")
    if hello.type not in (CONTROL, HEARTBEAT) or type(hello.name) is not str:
        raise ConnectionLost("not a hello")
    return hello
