"""The wire format of protocol buffers: the fields of a message by number, without a schema.

It is parsed here and not by the protobuf library, which would hold every tensor of a file twice.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
Value = int | memoryview


def parse_message(message: memoryview, fixed: bool = False) -> Iterator[tuple[int, Value]]:
    """Yield number and value, an integer or bytes, of each field of a message.

    Args:
        message: of one level; a field that holds another message is bytes.
        fixed: whether numbers of fixed size are allowed, which are bytes too.

    Raises:
        ValueError: The message is truncated or has a field of another wire type.
    """
    position = 0
    while position < len(message):
        key, position = _parse_varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, position = _parse_varint(message, position)
            yield number, value
            continue
        if kind == BYTES:
            size, position = _parse_varint(message, position)
        elif fixed and kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise ValueError(f"a field of wire type {kind}")
        if position + size > len(message):
            raise ValueError("it is truncated")
        yield number, message[position : position + size]
        position += size


def parse_packed(message: memoryview) -> list[int]:
    """Return the integers of a packed field. Raises ValueError if one is truncated."""
    values, position = [], 0
    while position < len(message):
        value, position = _parse_varint(message, position)
        values.append(value)
    return values


def _parse_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, lowest first, and the position after it. Raises ValueError."""
    value = 0
    for k, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            if value >= 1 << 64:
                raise ValueError("a number of more than 64 bits")
            return value, position + k + 1
    raise ValueError("it is truncated")
