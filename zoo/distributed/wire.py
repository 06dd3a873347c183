"""Messages over TCP between the processes of a run, and the handshake by which both sides prove that they belong to it.

A message is a 4-byte big-endian length and the payload. Rank 0 sends a nonce to whoever connects. The other rank
answers with a hello: its own nonce, its description as JSON, and an HMAC of both with the nonce of rank 0. Every reply
of rank 0 carries an HMAC with the nonce of the other rank. The key follows from the secret of the start
(docs/reliability.md).
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
from collections.abc import Mapping, Sequence
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
CONTROL, HEARTBEAT = "control", "heartbeat"  # the two connections of a rank


class ConnectionLost(Exception):
    """The peer closed the connection, timed out, or sent something that is not a message."""


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message.

    Raises:
        ConnectionLost: The peer is gone.
    """
    try:
        connection.sendall(struct.pack("!I", len(message)) + message)
    except OSError as error:
        raise ConnectionLost(str(error)) from None


def receive(connection: socket.socket, limit: int = MAX_MESSAGE_SIZE, end: float | None = None) -> bytes:
    """Wait for the next message and return it.

    Args:
        connection: a blocking socket.
        limit: bytes that the message may have.
        end: time of the monotonic clock, in seconds, until which the whole message must be here.

    Raises:
        ConnectionLost: The peer is gone or late, or the bytes are not a message.
    """
    (length,) = struct.unpack("!I", _receive_exactly(connection, 4, end))
    if length > limit:
        raise ConnectionLost("not a message")
    return _receive_exactly(connection, length, end)


def read(reader: BinaryIO) -> bytes:
    """Wait for the next message and return it, like `receive` but with half the system calls.

    Args:
        reader: `makefile("rb")` of a blocking socket, from which nothing else receives.

    Raises:
        ConnectionLost: The peer is gone, or the bytes are not a message.
    """
    try:
        header = reader.read(4)
        length = int.from_bytes(header, "big")
        message = reader.read(length) if len(header) == 4 and length <= MAX_MESSAGE_SIZE else b""
    except OSError as error:
        raise ConnectionLost(str(error)) from None
    if len(header) < 4 or len(message) < length:
        raise ConnectionLost("closed, or not a message")
    return message


def pack(messages: Sequence[bytes]) -> bytes:
    """Join several messages into one."""
    return b"".join(struct.pack("!I", len(message)) + message for message in messages)


def unpack(packed: bytes) -> list[bytes]:
    """Split the result of `pack` into its messages."""
    messages, start = [], 0
    while start < len(packed):
        (length,) = struct.unpack_from("!I", packed, start)
        messages.append(packed[start + 4 : start + 4 + length])
        start += 4 + length
    return messages


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
        job: identifiers by which the launcher tells starts apart; they are part of every key.
        environ: environment of this process.

    Raises:
        UserError: Other users may read the file.
    """
    secret = environ.get(VARIABLE, "").encode() or _read_file(Path(environ.get("HOME") or "/nonexistent") / FILE)
    return hmac.digest(secret, job.encode(), hashlib.sha256)


def sign(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Return the code, 32 bytes, of a message to the side that chose `nonce`, so that none is valid twice."""
    return hmac.digest(key, nonce + message, hashlib.sha256)


def _read_file(path: Path) -> bytes:
    """Return the content of the file, empty if there is none."""
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


def receive_hello(connection: socket.socket, key: bytes, end: float) -> tuple[Hello, bytes]:
    """Send a nonce to whoever has connected, and return the hello that answers, and the nonce for replies to it.

    Args:
        connection: as accepted.
        key: of the run.
        end: time of the monotonic clock, in seconds, until which the hello must be here.

    Raises:
        ConnectionLost: The peer is gone or late, or not a process of this run.
    """
    nonce = secrets.token_bytes(NONCE_SIZE)
    send(connection, nonce)
    body = _signed_body(receive(connection, MAX_HELLO_SIZE, end), key, nonce)
    return _parse(body[NONCE_SIZE:]), body[:NONCE_SIZE]


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
    body = _signed_body(receive(connection, MAX_HELLO_SIZE, end), key, nonce)
    reply: dict[str, Any] = json.loads(body)
    return reply


def _signed_body(message: bytes, key: bytes, nonce: bytes) -> bytes:
    """Return a message without its code. Raises ConnectionLost if that is another than that of `sign`."""
    code, body = message[:CODE_SIZE], message[CODE_SIZE:]
    if not hmac.compare_digest(sign(key, nonce, body), code):
        raise ConnectionLost("without the secret of this run")
    return body


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
