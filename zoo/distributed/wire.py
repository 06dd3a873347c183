"""Length-prefixed messages over a TCP socket: a 4-byte big-endian length, then the payload."""

import socket
import struct
from collections.abc import Sequence

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


def receive(connection: socket.socket) -> bytes:
    """Wait for the next message and return it.

    Raises:
        ConnectionLost: The peer is gone, or the bytes are not a message.
    """
    (length,) = struct.unpack("!I", _receive_exactly(connection, 4))
    if length > MAX_MESSAGE_SIZE:
        raise ConnectionLost("not a message")
    return _receive_exactly(connection, length)


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


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < count:
        try:
            chunk = connection.recv(count - len(buffer))
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if not chunk:
            raise ConnectionLost("closed")
        buffer += chunk
    return bytes(buffer)
