"""The .bin files of insightface's verification sets: pickles of encoded pictures. Nothing that a file names is called.

A pickle is a small program: it names functions, which loading calls. Here every name but the few that bytes and arrays
of bytes need is refused, and those few are answered with the stand-ins below; numpy's own are never reached.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

from data.errors import UserError

MAX_BYTES = 2 << 30  # of a file; those that are published have less than a tenth of it
REMEDY = "fetch it again, or write the pairs into a text file with lines `path path 0|1`"


def read_bin(path: str) -> tuple[list[bytes], list[bool], bytes]:
    """The 2P encoded pictures of a file, for each of its P pairs whether they show one person, and the file itself.

    Pictures 2i and 2i + 1 are pair i. Raises UserError naming the file and, where it is one, the picture.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot read this verification set ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: has more than {MAX_BYTES} bytes, which no verification set needs; {REMEDY}")
    try:
        _check_memo(content)
        loaded = _Reader(io.BytesIO(content), encoding="bytes").load()  # bytes: as Python 2 wrote its texts
    except Exception as error:  # a broken pickle raises almost anything
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{path} is not read: it is broken, or holds more than pictures, which would mean running code "
            f"from it ({type(error).__name__}: {reason}); {REMEDY}"
        ) from None
    if not isinstance(loaded, (tuple, list)) or [type(part) for part in loaded] != [list, list]:
        raise UserError(f"{path}: no verification set, which is a list of pictures and a list of answers; {REMEDY}")
    items, same = loaded
    if len(items) != 2 * len(same) or not same:
        raise UserError(f"{path}: {len(items)} pictures for {len(same)} pairs; {REMEDY}")
    for number, answer in enumerate(same):
        if type(answer) not in (bool, int) or answer not in (0, 1):
            raise UserError(f"{path}: the answer of pair {number} is neither true nor false; {REMEDY}")
    pictures = [item.content if isinstance(item, _Array) else item for item in items]
    for number, picture in enumerate(pictures):
        if not isinstance(picture, bytes) or not picture:
            raise UserError(f"{path}: picture {number} (of pair {number // 2}) is no encoded picture; {REMEDY}")
    return pictures, [bool(answer) for answer in same], content


def _check_memo(content: bytes) -> None:
    """Raises ValueError for a memo larger than the file: the unpickler would reserve memory for all of it."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "LONG_BINPUT") and argument > len(content):
            raise ValueError(f"a memo of {argument} entries")


class _Array:
    """What the file rebuilds in place of a numpy array of bytes; `content` is None until they have come."""

    __slots__ = ("content",)

    def __init__(self, content: Any = None):
        self.content = content

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, _, content = state
        self.content = _checked(content, kind, shape)


class _Type:
    """What the file rebuilds in place of a numpy dtype."""

    __slots__ = ("name",)

    def __init__(self, name: Any, *_):
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and the like, which single bytes do not have


class _Known:
    """A name the file may use, callable and nothing else: no class to subclass, no attributes to set."""

    __slots__ = ("function",)

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a function cannot be given a state")


def _checked(content: Any, kind: Any, shape: Any) -> bytes:
    if not isinstance(kind, _Type) or kind.name not in ("u1", b"u1"):
        raise ValueError("an array of other numbers than bytes")
    if not isinstance(content, (bytes, bytearray)) or not isinstance(shape, tuple) or math.prod(shape) != len(content):
        raise ValueError(f"an array of shape {shape} with other bytes than these")
    return bytes(content)


def _no_call(*_: Any) -> None:
    raise ValueError("only _reconstruct and _frombuffer make arrays")


def _reconstruct(*_: Any) -> _Array:
    """How protocols up to 4 begin an array; its state follows."""
    return _Array()


def _frombuffer(content: Any, kind: Any, shape: Any, _: Any) -> _Array:
    """How protocol 5 spells an array."""
    return _Array(_checked(content, kind, shape))


def _encode(text: str, encoding: Any) -> bytes:
    """How Python 3 spells bytes in protocol 2, which knows none."""
    if encoding != "latin1":
        raise ValueError(f"bytes in {encoding!r}")
    return text.encode("latin1")


KNOWN = {
    ("numpy", "ndarray"): _Known(_no_call),
    ("numpy", "dtype"): _Known(_Type),
    ("_codecs", "encode"): _Known(_encode),
}
for _core in ("core", "_core"):  # numpy 1, numpy 2
    KNOWN[f"numpy.{_core}.multiarray", "_reconstruct"] = _Known(_reconstruct)
    KNOWN[f"numpy.{_core}.numeric", "_frombuffer"] = _Known(_frombuffer)


class _Reader(pickle.Unpickler):
    """An unpickler that knows KNOWN alone."""

    def find_class(self, module: str, name: str) -> _Known:
        if (module, name) not in KNOWN:
            raise ValueError(f"it names {module}.{name}")
        return KNOWN[module, name]
