"""Constants of the pixel normalization, which runs on the device."""

import numpy as np

from zoo.data.batch import Field


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
