"""Unpickling of bytes and numpy arrays that never runs code from the file.

A pickle is a small program: it names functions, and loading calls them. The unpickler below refuses every name except
the few that dicts, bytes and arrays need. Those few are bound to stand-ins, so numpy's own functions are never reached.
Memory stays in proportion to the size of the file (data/formats/pickle_screen.py).
"""

import math
import os
import pickle
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from zoo.data.formats.pickle_screen import screen

BYTE_ORDERS = ("<", ">", "|", "=")
MAX_DIMENSIONS = 32  # of numpy 1


def load(file: BinaryIO, dtypes: Collection[str], encoding: str = "ASCII") -> Any:
    """Unpickle a file that holds builtin containers, numbers, text, bytes and numpy arrays only.

    Args:
        file: seekable binary file, read from its beginning.
        dtypes: numpy's names of the dtypes that arrays may have, without a byte order, such as "f4".
        encoding: how to decode the strings of Python 2; "bytes" keeps them as bytes.

    Returns:
        The object, in which an `Array` stands for every numpy array.

    Raises:
        ValueError: the pickle is damaged, names something that is not allowed, or expands to more data than the file
            holds.
    """
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        screen(file, size)
        file.seek(0)
        return _SafeUnpickler(file, encoding, _allowed(dtypes, _Budget(2 * size))).load()
    except Exception as error:  # a damaged pickle raises almost anything
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{type(error).__name__}: {reason}") from None


class _Budget:
    """Bytes that the stand-ins of one file may still make.

    A pickle can name the same data any number of times. No regular one makes more than twice its own size: text encoded
    as bytes, and the array of these bytes.
    """

    __slots__ = ("remaining",)

    def __init__(self, size: int):
        self.remaining = size

    def spend(self, size: int) -> None:
        self.remaining -= size
        if self.remaining < 0:
            raise ValueError("it expands to more data than the file holds")


class Array:
    """Stand-in for a numpy array.

    Attributes:
        content: The elements as the file stores them; None if it never does.
        array: The elements in native byte order; None if the file never stores them.
    """

    __slots__ = ("_budget", "array", "content")

    def __init__(self, budget: _Budget):
        self._budget = budget
        self.content: bytes | None = None
        self.array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.fill(content, dtype, shape, "F" if fortran else "C")

    def fill(self, content: Any, dtype: Any, shape: Any, order: Any) -> None:
        """Set the elements.

        Raises:
            ValueError: the arguments are not those of an array.
        """
        if not isinstance(dtype, _DType) or not isinstance(shape, tuple) or not isinstance(content, bytes):
            raise ValueError("an array of an unsupported form")
        if len(shape) > MAX_DIMENSIONS or any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(f"an array of shape {shape}")
        if len(content) != math.prod(shape) * dtype.dtype.itemsize:
            raise ValueError(f"{len(content)} bytes for an array of shape {shape} and type {dtype.dtype}")
        self._budget.spend(len(content))
        flat = np.frombuffer(content, dtype.dtype).astype(dtype.dtype.newbyteorder("="), copy=False)
        self.content, self.array = content, flat.reshape(shape, order="F" if order == "F" else "C")


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

    def __init__(self, file: BinaryIO, encoding: str, allowed: dict[tuple[str, str], _AllowedCall]):
        super().__init__(file, encoding=encoding)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> _AllowedCall:
        if (module, name) not in self._allowed:
            raise ValueError(f"it names {module}.{name}")
        return self._allowed[module, name]


def _allowed(dtypes: Collection[str], budget: _Budget) -> dict[tuple[str, str], _AllowedCall]:
    """Return the stand-ins of all names that a file may use, by module and name."""
    ndarray = _AllowedCall(_refuse_call)
    names = {
        ("numpy", "ndarray"): ndarray,
        ("numpy", "dtype"): _AllowedCall(partial(_DType, dtypes)),
        ("_codecs", "encode"): _AllowedCall(partial(_encode, budget)),
        ("collections", "OrderedDict"): _AllowedCall(_empty_dict),
        ("builtins", "tuple"): _AllowedCall(_same_tuple),
        ("__builtin__", "tuple"): _AllowedCall(_same_tuple),  # protocol 2
        ("__builtin__", "bytes"): _AllowedCall(_empty_bytes),
    }
    for core in ("core", "_core"):  # numpy 1, numpy 2
        names[f"numpy.{core}.multiarray", "_reconstruct"] = _AllowedCall(partial(_reconstruct, budget, ndarray))
        names[f"numpy.{core}.numeric", "_frombuffer"] = _AllowedCall(partial(_frombuffer, budget))
    return names


def _refuse_call(*_: Any) -> None:
    raise ValueError("only _reconstruct and _frombuffer make arrays")


def _reconstruct(budget: _Budget, ndarray: _AllowedCall, cls: Any, *_: Any) -> Array:
    """Begin an array, as protocols up to 4 do; its state follows."""
    if cls is not ndarray:
        raise ValueError("an array of an unknown class")
    return Array(budget)


def _frombuffer(budget: _Budget, content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """Make a complete array, as protocol 5 does."""
    if isinstance(content, bytearray):
        budget.spend(len(content))
        content = bytes(content)
    array = Array(budget)
    array.fill(content, dtype, shape, order)
    return array


def _encode(budget: _Budget, text: str, encoding: Any) -> bytes:
    """Make bytes, as Python 3 does in protocol 2, which has no opcode for them."""
    if encoding != "latin1":
        raise ValueError(f"bytes in {encoding!r}")
    budget.spend(len(text))
    return text.encode("latin1")


def _empty_bytes(*arguments: Any) -> bytes:
    """Make empty bytes, as Python 3 does in protocol 2."""
    if arguments:
        raise ValueError("bytes with arguments")
    return b""


def _empty_dict(*arguments: Any) -> dict[Any, Any]:
    """Make an OrderedDict, whose items follow."""
    if arguments:
        raise ValueError("an OrderedDict with arguments")
    return {}


def _same_tuple(items: Any) -> tuple[Any, ...]:
    """Return a tuple as it is: Paddle pickles a tensor as the call tuple((name, array))."""
    if not isinstance(items, tuple):
        raise ValueError("a tuple of something else")
    return items


def _as_text(name: Any) -> Any:
    """Decode bytes, which text of Python 2 comes as with encoding="bytes"."""
    return name.decode("latin1") if isinstance(name, bytes) else name
