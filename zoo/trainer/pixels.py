"""Constants of the pixel normalization; bilinear interpolation and average pooling of an axis in numpy.

As matrices they are for frameworks whose kernels round the weights to fp32 even in fp64.
"""

from functools import cache

import numpy as np

from zoo.data.batch import Field

Taps = tuple[np.ndarray, np.ndarray, np.ndarray]


def scale_and_offset(field: Field, dtype: type[np.floating] = np.float32) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (C,) arrays so that `pixels * scale + offset` equals `(pixels / 255 - mean) / std`.

    None for a field that does not hold pixels. Computed in float64 and rounded to dtype.
    """
    if field.mean is None or field.std is None:
        return None
    mean, std = np.array(field.mean, np.float64), np.array(field.std, np.float64)
    return (1 / (255 * std)).astype(dtype), (-mean / std).astype(dtype)


def channels_first(num_axes: int) -> tuple[int, ...]:
    """Return the permutation of (N, ..., H, W, C) to (N, ..., C, H, W)."""
    last = num_axes - 1
    return (*range(last - 2), last, last - 2, last - 1)


def normalize(pixels: np.ndarray, field: Field, channels_last: bool = False) -> np.ndarray:
    """Return the pixels of a field as a model takes them: float32, normalized, channels first or last."""
    constants = scale_and_offset(field)
    assert constants is not None, "the field holds pixels"
    scale, offset = constants
    normalized = pixels * scale + offset
    return normalized if channels_last else np.ascontiguousarray(normalized.transpose(channels_first(pixels.ndim)))


def resize_bilinear(x: np.ndarray, size: tuple[int, int], align_corners: bool) -> np.ndarray:
    """Resize the last two axes, each row first and then the columns: float32 (..., *size).

    Places are rounded to float32, as in the kernels of the frameworks.
    """
    if x.shape[-2:] == tuple(size):
        return x
    columns, rows = (
        bilinear_taps(inputs, outputs, align_corners, np.float32)
        for inputs, outputs in zip(x.shape[:-3:-1], size[::-1])
    )
    resized = np.empty((*x.shape[:-2], *size), np.float32)
    for index in np.ndindex(x.shape[:-2]):  # planes that fit into a cache
        resized[index] = _interpolate(_interpolate(x[index], columns, 1), rows, 0)
    return resized


def _interpolate(plane: np.ndarray, taps: Taps, axis: int) -> np.ndarray:
    first, second, weight = taps
    weight = weight if axis == 1 else weight[:, None]
    result, other = (np.take(plane, index, axis, mode="clip") for index in (first, second))
    result *= 1 - weight
    other *= weight
    result += other
    return result


@cache
def bilinear_taps(inputs: int, outputs: int, align_corners: bool, dtype: type[np.floating] = np.float64) -> Taps:
    """Return the two elements of an axis that each element of the resized one lies between, and the second's weight.

    Args:
        align_corners: the first and last pixels have the same centers before and after; else the outer edges do.

    Returns:
        Indices int64 (outputs,) twice, and weights (outputs,) from 0 to 1.
    """
    index, half = np.arange(outputs, dtype=dtype), dtype(0.5)
    if align_corners:
        source = index * dtype((inputs - 1) / max(outputs - 1, 1))
    else:
        source = np.maximum((index + half) * dtype(inputs / outputs) - half, 0)
    first = np.minimum(source.astype(int), inputs - 1)
    return first, np.minimum(first + 1, inputs - 1), source - first.astype(dtype)


@cache
def bilinear_matrix(inputs: int, outputs: int, align_corners: bool) -> np.ndarray:
    """Return the matrix that resizes an axis: float64 (outputs, inputs). Arguments as of bilinear_taps."""
    first, second, weight = bilinear_taps(inputs, outputs, align_corners)
    index, matrix = np.arange(outputs), np.zeros((outputs, inputs))
    np.add.at(matrix, (index, first), 1 - weight)
    np.add.at(matrix, (index, second), weight)
    return matrix


@cache
def average_matrix(inputs: int, kernel: int, stride: int, ceil_mode: bool) -> np.ndarray:
    """Return the matrix that averages windows of an axis without padding: float64 (outputs, inputs).

    Args:
        ceil_mode: the last window may reach beyond the end; it averages the elements that there are.
    """
    steps = inputs - kernel
    outputs = (-(-steps // stride) if ceil_mode else steps // stride) + 1
    outputs -= (outputs - 1) * stride >= inputs
    matrix = np.zeros((outputs, inputs))
    for row, start in zip(matrix, range(0, inputs, stride)):
        row[start : start + kernel] = 1 / min(kernel, inputs - start)
    return matrix
