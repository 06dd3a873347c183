"""Paddle's .pdparams, a pickle of numpy arrays by name. Nothing that a file names is ever called.

A pickle is a small program: it names functions, which loading calls. Here every name but the few that arrays and
dicts need is refused, and those few are answered with the stand-ins below; numpy's own are never reached.
"""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from data.errors import UserError

NESTED = ("state_dict", "model")  # where a checkpoint with more in it keeps the tensors
TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
BFLOAT16 = np.dtype("u2")  # numpy has no bfloat16, so Paddle saves its bits; its nets hold no other uint16
REMEDY = "load it in Paddle and save the state_dict of the net alone with paddle.save"


def read(path: str) -> dict[str, np.ndarray]:
    """The tensors of a file by name; 16-bit floats come back as float32. Raises UserError naming the file."""
    try:
        with open(path, "rb") as file:
            content = _Reader(file).load()
    except Exception as error:  # a broken pickle raises almost anything
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{path} is not read: it is broken, or holds more than numpy arrays, which would mean running "
            f"code from it ({type(error).__name__}: {reason}). Fetch it again; if you trust it, {REMEDY}"
        ) from None
    content = next(
        (content[key] for key in NESTED if isinstance(content, dict) and isinstance(content.get(key), dict)), content
    )
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path} holds no named tensors but a {type(content).__name__}; {REMEDY}")
    return {name: _tensor(path, name, value) for name, value in content.items() if not str(name).endswith("@@")}


def _tensor(path: str, name: Any, value: Any) -> np.ndarray:
    """An entry of the dict: an array, or the pair (Paddle's own name, array) that nested dicts hold."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if not isinstance(name, str) or not isinstance(value, _Array) or value.array is None:
        raise UserError(f"{path}: the entry {name!r} is no array; {REMEDY}")
    array = value.array
    if array.dtype == BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


class _Array:
    """What the file rebuilds in place of a numpy array; `array` is set when its bytes have come."""

    __slots__ = ("array",)

    def __init__(self):
        self.array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _Type) or not isinstance(shape, tuple) or not isinstance(content, (bytes, bytearray)):
            raise ValueError("an array of an unknown kind")
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"an array of shape {shape}")
        flat = np.frombuffer(content, kind.dtype)  # raises ValueError unless the bytes are whole numbers
        if flat.size != math.prod(shape):
            raise ValueError(f"{flat.size} numbers for an array of shape {shape}")
        flat = flat.astype(kind.dtype.newbyteorder("="), copy=False)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class _Type:
    """What the file rebuilds in place of a numpy dtype."""

    __slots__ = ("dtype",)

    def __init__(self, name: Any, *_):
        if name not in TYPES:
            raise ValueError(f"arrays of type {name!r} are not read")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "|", "=") or any(state[2:5]):
            raise ValueError(f"arrays of type {state!r} are not read")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Known:
    """A name the file may use, callable and nothing else: no class to subclass, no attributes to set."""

    __slots__ = ("function",)

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a function cannot be given a state")


def _no_call(*_: Any) -> None:
    raise ValueError("only _reconstruct makes arrays")


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if kind is not KNOWN["numpy", "ndarray"]:
        raise ValueError("an array of an unknown class")
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2, which knows no bytes, spells them."""
    if encoding != "latin1":
        raise ValueError(f"bytes in {encoding!r}")
    return text.encode("latin1")


def _empty(*arguments: Any) -> bytes:
    """How protocol 2 spells no bytes at all."""
    if arguments:
        raise ValueError("bytes made of something")
    return b""


def _ordered(*pairs: Any) -> dict:
    if pairs:
        raise ValueError("an OrderedDict in an unknown form")
    return {}


KNOWN = {
    ("numpy", "ndarray"): _Known(_no_call),
    ("numpy", "dtype"): _Known(_Type),
    ("numpy.core.multiarray", "_reconstruct"): _Known(_reconstruct),  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _Known(_reconstruct),  # numpy 2
    ("_codecs", "encode"): _Known(_encode),
    ("collections", "OrderedDict"): _Known(_ordered),
    ("builtins", "tuple"): _Known(tuple),
    ("__builtin__", "tuple"): _Known(tuple),  # protocol 2
    ("__builtin__", "bytes"): _Known(_empty),
}


class _Reader(pickle.Unpickler):
    """An unpickler that knows KNOWN alone."""

    def find_class(self, module: str, name: str) -> _Known:
        if (module, name) not in KNOWN:
            raise ValueError(f"it names {module}.{name}")
        return KNOWN[module, name]
