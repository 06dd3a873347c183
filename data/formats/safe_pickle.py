"""Unpickling of bytes and numpy arrays that never runs code from the file.

A pickle is a small program: it names functions, and loading calls them. The unpickler below refuses every name except
the few that dicts, bytes and arrays need. Those few are bound to stand-ins, so numpy's own functions are never reached.
"""

import math
import pickle
import pickletools
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, BinaryIO

import numpy as np

BYTE_ORDERS = ("<", ">", "|", "=")


def load(file: BinaryIO, dtypes: Collection[str], encoding: str = "ASCII") -> Any:
    """Unpickle a file that holds builtin containers, numbers, text, bytes and numpy arrays only.

    Args:
        file: seekable binary file, read from its beginning.
        dtypes: numpy's names of the dtypes that arrays may have, without a byte order, such as "f4".
        encoding: how to decode the strings of Python 2; "bytes" keeps them as bytes.

    Returns:
        The object, in which an `Array` stands for every numpy array.

    Raises:
        Exception: almost anything when the pickle is damaged; ValueError when it names something that is not allowed.
    """
    _check_memo(file)
    file.seek(0)
    return _SafeUnpickler(file, dtypes, encoding).load()


class Array:
    """Stand-in for a numpy array of the file; `array` is None until its contents have been read."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray | None = None):
        self.array = array

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.array = _build_array(content, dtype, shape, "F" if fortran else "C")


class _DType:
    """Stand-in for a numpy dtype."""

    __slots__ = ("dtype",)

    def __init__(self, dtypes: Collection[str], name: Any, *_: Any):
        if _as_text(name) not in dtypes:
            raise ValueError(f"arrays of type {name!r} are not supported")
        self.dtype = np.dtype(_as_text(name))

    def __setstate__(self, state: Any) -> None:
        if _as_text(state[1]) not in BYTE_ORDERS or any(state[2:5]):
            raise ValueError(f"arrays of type {state!r} are not supported")
        self.dtype = self.dtype.newbyteorder(_as_text(state[1]))


class _AllowedCall:
    """A function that the file may call and do nothing else with: not subclass it, not set its attributes."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a function cannot be given a state")


class _SafeUnpickler(pickle.Unpickler):
    """Unpickler that resolves only the names of its own table."""

    def __init__(self, file: BinaryIO, dtypes: Collection[str], encoding: str):
        super().__init__(file, encoding=encoding)
        self._allowed = {**ALLOWED, ("numpy", "dtype"): _AllowedCall(partial(_DType, dtypes))}

    def find_class(self, module: str, name: str) -> _AllowedCall:
        if (module, name) not in self._allowed:
            raise ValueError(f"it names {module}.{name}")
        return self._allowed[module, name]


def _check_memo(file: BinaryIO) -> None:
    """Raise ValueError for a memo index beyond the file size: the unpickler would reserve memory for all of it."""
    size = file.seek(0, 2)
    file.seek(0)
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in ("PUT", "LONG_BINPUT") and argument is not None and argument > size:
            raise ValueError(f"a memo of {argument} entries")


def _build_array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(shape, tuple) or not isinstance(content, (bytes, bytearray)):
        raise ValueError("an array of an unsupported form")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    flat = np.frombuffer(content, dtype.dtype)  # raises ValueError for a fraction of an element
    if flat.size != math.prod(shape):
        raise ValueError(f"{flat.size} elements for an array of shape {shape}")
    return flat.astype(dtype.dtype.newbyteorder("="), copy=False).reshape(shape, order="F" if order == "F" else "C")


def _refuse_call(*_: Any) -> None:
    raise ValueError("only _reconstruct and _frombuffer make arrays")


def _reconstruct(cls: Any, *_: Any) -> Array:
    """Begin an array, as protocols up to 4 do; its state follows."""
    if cls is not ALLOWED["numpy", "ndarray"]:
        raise ValueError("an array of an unknown class")
    return Array()


def _frombuffer(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """Make a complete array, as protocol 5 does."""
    return Array(_build_array(content, dtype, shape, order))


def _encode(text: str, encoding: Any) -> bytes:
    """Make bytes, as Python 3 does in protocol 2, which has no opcode for them."""
    if encoding != "latin1":
        raise ValueError(f"bytes in {encoding!r}")
    return text.encode("latin1")


def _empty_bytes(*arguments: Any) -> bytes:
    """Make empty bytes, as Python 3 does in protocol 2."""
    if arguments:
        raise ValueError("bytes with arguments")
    return b""


def _empty_dict(*arguments: Any) -> dict:
    """Make an OrderedDict, whose items follow."""
    if arguments:
        raise ValueError("an OrderedDict with arguments")
    return {}


def _as_text(name: Any) -> Any:
    """Decode bytes, which text of Python 2 comes as with encoding="bytes"."""
    return name.decode("latin1") if isinstance(name, bytes) else name


ALLOWED = {
    ("numpy", "ndarray"): _AllowedCall(_refuse_call),
    ("_codecs", "encode"): _AllowedCall(_encode),
    ("collections", "OrderedDict"): _AllowedCall(_empty_dict),
    ("builtins", "tuple"): _AllowedCall(tuple),
    ("__builtin__", "tuple"): _AllowedCall(tuple),  # protocol 2
    ("__builtin__", "bytes"): _AllowedCall(_empty_bytes),
}
for _core in ("core", "_core"):  # numpy 1, numpy 2
    ALLOWED[f"numpy.{_core}.multiarray", "_reconstruct"] = _AllowedCall(_reconstruct)
    ALLOWED[f"numpy.{_core}.numeric", "_frombuffer"] = _AllowedCall(_frombuffer)
