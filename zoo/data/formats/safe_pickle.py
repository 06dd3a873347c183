"""Unpickling of bytes and numpy arrays that never runs code from the file.

A pickle is a small program: it names functions, and loading calls them. The unpickler below is Python's own in pure
Python, whose memo is a dict that no index can blow up. It refuses every name except those of a table, which are bound
to stand-ins, so that numpy's and PyTorch's own functions are never reached; and it counts opcodes and bytes, so that
time and memory stay in proportion to the size of the file.
"""

import math
import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np

BYTE_ORDERS = ("<", ">", "|", "=")
MAX_DIMENSIONS = 32  # of numpy 1
FREE_OPCODES, BYTES_PER_OPCODE = 500_000, 256  # limit of opcodes: the first, and one more per so many bytes
MAX_KEY = 2**32  # of a dict: larger numbers can be chosen so that all have the same hash
KEY_TYPES = (str, bytes, int, type(None))
_PurePython: Any = pickle._Unpickler  # which the type checker takes for the one in C
Names = Mapping[tuple[str, str], Any]  # module and name -> its stand-in


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
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return unpickle(file, size, _allowed(dtypes, _Budget(2 * size)), encoding)


def unpickle(
    file: BinaryIO,
    size: int,
    names: Names,
    encoding: str = "ASCII",
    persistent_load: Callable[[Any], Any] | None = None,
) -> Any:
    """Unpickle one object and leave the file behind it. Raises ValueError.

    Args:
        size: of the whole file in bytes, which the limits depend on.
        names: that the pickle may use, and what stands for them.
        encoding: how to decode the strings of Python 2.
        persistent_load: makes an object of the identifier of one that is stored elsewhere.
    """
    unpickler = _Unpickler(_Reader(file, size), encoding=encoding)
    unpickler.names, unpickler.dispatch = names, _Opcodes(FREE_OPCODES + size // BYTES_PER_OPCODE)
    if persistent_load:
        unpickler.persistent_load = persistent_load
    try:
        return unpickler.load()
    except Exception as error:  # a damaged pickle raises almost anything
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{type(error).__name__}: {reason}") from None


class _Reader:
    """A file that gives no memory to a length beyond its own."""

    def __init__(self, file: BinaryIO, size: int):
        self.readline, self._read, self._size = file.readline, file.read, size

    def read(self, size: int) -> bytes:
        if size > self._size:
            raise ValueError(f"{size} bytes beyond the end of the file")
        return self._read(size)


class _Unpickler(_PurePython):
    """Unpickler that resolves the names of a table alone; a key is text or a small number."""

    names: Names

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # of Python 2
        if (module, name) not in self.names:
            raise ValueError(f"it names {module}.{name}")
        return self.names[module, name]

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    def load_additems(self) -> None:
        _check_keys(self.stack)
        super().load_additems()

    def load_frozenset(self) -> None:
        _check_keys(self.stack)
        super().load_frozenset()


def _check_keys(keys: Sequence[Any]) -> None:
    """Raise ValueError for keys whose hashes may take any time, such as tuples of tuples that share one another."""
    for key in keys:
        if not isinstance(key, KEY_TYPES) or (isinstance(key, int) and abs(key) > MAX_KEY):
            raise ValueError("a key that is neither text nor a small number")


class _Opcodes(dict[int, Callable[[Any], None]]):
    """The functions of all opcodes; each look-up counts."""

    OWN = ("setitem", "setitems", "dict", "additems", "frozenset")

    def __init__(self, limit: int):
        own = {getattr(pickle, name.upper())[0]: getattr(_Unpickler, f"load_{name}") for name in self.OWN}
        super().__init__({**_Unpickler.dispatch, **own})
        self.left = limit

    def __getitem__(self, opcode: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise ValueError("more opcodes than a file of this size has")
        return super().__getitem__(opcode)


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
        """Set the elements. Raises ValueError."""
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
    __slots__ = ("dtype",)

    def __init__(self, dtypes: Collection[str], name: Any, *_: Any):
        if _as_text(name) not in dtypes:
            raise ValueError(f"arrays of type {name!r} are not supported")
        self.dtype = np.dtype(_as_text(name))

    def __setstate__(self, state: Any) -> None:
        if _as_text(state[1]) not in BYTE_ORDERS or any(state[2:5]):
            raise ValueError(f"arrays of type {state!r} are not supported")
        self.dtype = self.dtype.newbyteorder(_as_text(state[1]))


class OrderedDict(dict[Any, Any]):
    """Stand-in for an OrderedDict, whose items follow; attributes, such as the versions of PyTorch, are left out."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        """Leave the state out."""


class AllowedCall:
    """A function that a file may call and do nothing else with: not subclass it, not set its attributes."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a function cannot be given a state")


def _allowed(dtypes: Collection[str], budget: _Budget) -> dict[tuple[str, str], AllowedCall]:
    """Return the stand-ins of all names that a file may use, by module and name."""
    ndarray = AllowedCall(_refuse_call)
    names = {
        ("numpy", "ndarray"): ndarray,
        ("numpy", "dtype"): AllowedCall(partial(_DType, dtypes)),
        ("_codecs", "encode"): AllowedCall(partial(_encode, budget)),
        ("collections", "OrderedDict"): AllowedCall(OrderedDict),
        ("builtins", "tuple"): AllowedCall(_same_tuple),
        ("builtins", "bytes"): AllowedCall(_empty_bytes),
    }
    for core in ("core", "_core"):  # numpy 1, numpy 2
        names[f"numpy.{core}.multiarray", "_reconstruct"] = AllowedCall(partial(_reconstruct, budget, ndarray))
        names[f"numpy.{core}.numeric", "_frombuffer"] = AllowedCall(partial(_frombuffer, budget))
    return names


def _refuse_call(*_: Any) -> None:
    raise ValueError("only _reconstruct and _frombuffer make arrays")


def _reconstruct(budget: _Budget, ndarray: AllowedCall, cls: Any, *_: Any) -> Array:
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


def _same_tuple(items: Any) -> tuple[Any, ...]:
    """Return a tuple as it is: Paddle pickles a tensor as the call tuple((name, array))."""
    if not isinstance(items, tuple):
        raise ValueError("a tuple of something else")
    return items


def _as_text(name: Any) -> Any:
    """Decode bytes, which text of Python 2 comes as with encoding="bytes"."""
    return name.decode("latin1") if isinstance(name, bytes) else name
