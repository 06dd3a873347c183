"""Length-prefixed messages over a TCP socket: a 4-byte big-endian length, then the payload."""

import socket
import struct
import time
from collections.abc import Sequence
from typing import BinaryIO

MAX_MESSAGE_SIZE = 1 << 30  # bytes; a larger length means that the peer speaks another protocol


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
