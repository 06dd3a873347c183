"""Messages over a socket: four bytes of length, then as many bytes."""

import socket
import struct
from collections.abc import Sequence

LIMIT = 1 << 30  # bytes; what is longer is no message of ours


class ConnectionLost(Exception):
    """The other side is gone, silent for too long, or speaks another language."""


def send(link: socket.socket, message: bytes) -> None:
    try:
        link.sendall(struct.pack("!I", len(message)) + message)
    except OSError as error:
        raise ConnectionLost(str(error)) from None


def receive(link: socket.socket) -> bytes:
    """The next message. Waits."""
    (length,) = struct.unpack("!I", _exactly(link, 4))
    if length > LIMIT:
        raise ConnectionLost("not a message")
    return _exactly(link, length)


def pack(parts: Sequence[bytes]) -> bytes:
    """Several messages as one."""
    return b"".join(struct.pack("!I", len(part)) + part for part in parts)


def unpack(message: bytes) -> list[bytes]:
    parts, start = [], 0
    while start < len(message):
        (length,) = struct.unpack_from("!I", message, start)
        parts.append(message[start + 4 : start + 4 + length])
        start += 4 + length
    return parts


def _exactly(link: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = link.recv(count - len(parts))
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if not part:
            raise ConnectionLost("closed")
        parts += part
    return bytes(parts)
