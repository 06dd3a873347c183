"""Inputs of a comparison: shapes with a distribution, arrays, files, or functions of a generator."""

import math
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError, known_names, parsing

SHAPE = re.compile(r"(?P<dtype>[a-z]+\d*):(?P<shape>\d+(?:,\d+)*)?(?::(?P<low>[^:]+):(?P<high>[^:]+))?")
DTYPES = ("float64", "float32", "float16", "int64", "int32", "uint8", "bool")
INTEGERS = (0, 10)  # from, up to but without
MAX_ELEMENTS = 1 << 31
Value = str | np.ndarray | Callable[[np.random.Generator], np.ndarray]


def make(values: Mapping[str, Value], seed: int = 0) -> dict[str, np.ndarray]:
    """Return the inputs by name.

    Args:
        values: DTYPE:SHAPE, of a normal distribution or, of integers, from 0 to 9; DTYPE:SHAPE:LOW:HIGH, of a uniform
            one from LOW up to HIGH, of integers without HIGH; FILE.npz or FILE.npy; an array; a function of a
            generator.
    """
    if not values:
        raise UserError("--input: at least one, such as x=float32:2,3,64,64")
    inputs: dict[str, np.ndarray] = {}
    for name, value in values.items():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if isinstance(value, str) and value.endswith((".npz", ".npy")):
            inputs.update(_of_file(name, value))
        elif isinstance(value, str):
            inputs[name] = _drawn(name, value, generator)
        else:
            inputs[name] = np.asarray(value(generator) if callable(value) else value)
    for name, array in inputs.items():
        if array.dtype.kind not in "fiub":
            raise UserError(f"input {name}: numbers, not {array.dtype}")
        if np.isnan(array).any():  # infinite ones may be those of a mask
            raise UserError(f"input {name}: has NaN, of which nothing can be compared")
    return inputs


def _drawn(name: str, text: str, generator: np.random.Generator) -> np.ndarray:
    found = SHAPE.fullmatch(text)
    if not found:
        raise UserError(f"input {name}={text}: write DTYPE:SHAPE, such as float32:2,3,64,64, or a file .npy or .npz")
    if "0" in (found["shape"] or "").split(","):
        raise UserError(f"input {name}={text}: has no elements; lengths are 1 or more")
    dtype, shape = found["dtype"], tuple(map(int, (found["shape"] or "").split(","))) if found["shape"] else ()
    if dtype not in DTYPES:
        raise UserError(f"input {name}: {dtype!r} is no type of inputs{known_names(dtype, DTYPES)}")
    if np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise UserError(f"input {name}: {text} has more than {MAX_ELEMENTS:,} elements")
    try:
        bounds = (float(found["low"]), float(found["high"])) if found["low"] else None
    except ValueError:
        raise UserError(f"input {name}={text}: LOW and HIGH are numbers") from None
    if bounds and not -math.inf < bounds[0] < bounds[1] < math.inf:
        raise UserError(f"input {name}={text}: HIGH is above LOW")
    if dtype.startswith("float"):
        values = generator.uniform(*bounds, shape) if bounds else generator.standard_normal(shape)
        return np.asarray(values, dtype)
    low, high = map(math.ceil, bounds) if bounds else (0, 2) if dtype == "bool" else INTEGERS
    if high <= low:
        raise UserError(f"input {name}={text}: there is no integer from LOW up to HIGH")
    return np.asarray(generator.integers(low, high, shape)).astype(dtype)


def _of_file(name: str, path: str) -> dict[str, np.ndarray]:
    with parsing(f"input {name}: {path} cannot be read"):
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {name: loaded}
        with loaded:
            if name not in ("*", *loaded.files):
                raise UserError(f"input {name}: {path} has no {name}; it has: {', '.join(loaded.files)}")
            return {key: loaded[key] for key in (loaded.files if name == "*" else [name])}


def nested(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs whose names have dots as dictionaries: batch.image is batch["image"]."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        *path, last = name.split(".")
        folder = found
        for part in path:
            folder = folder.setdefault(part, {})
        folder[last] = value
    return found
