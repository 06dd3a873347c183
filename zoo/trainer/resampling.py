"""Bilinear interpolation and average pooling of an axis as a matrix.

For frameworks whose kernels round the weights to fp32 even in fp64.
"""

from functools import cache

import numpy as np


@cache
def bilinear_matrix(inputs: int, outputs: int, align_corners: bool) -> np.ndarray:
    """Return the matrix that resizes an axis: float64 (outputs, inputs).

    Args:
        inputs: size of the axis.
        outputs: the new size.
        align_corners: the first and last pixels have the same centers before and after; else the outer edges do.
    """
    index = np.arange(outputs)
    if align_corners:
        source = index * ((inputs - 1) / max(outputs - 1, 1))
    else:
        source = np.maximum((index + 0.5) * (inputs / outputs) - 0.5, 0)
    first = np.minimum(source.astype(int), inputs - 1)
    second = np.minimum(first + 1, inputs - 1)
    matrix = np.zeros((outputs, inputs))
    np.add.at(matrix, (index, first), 1 - (source - first))
    np.add.at(matrix, (index, second), source - first)
    return matrix


@cache
def average_matrix(inputs: int, kernel: int, stride: int, ceil_mode: bool) -> np.ndarray:
    """Return the matrix that averages windows of an axis without padding: float64 (outputs, inputs).

    Args:
        inputs: size of the axis.
        kernel: size of a window.
        stride: between windows.
        ceil_mode: the last window may reach beyond the end; it averages the elements that there are.
    """
    steps = inputs - kernel
    outputs = (-(-steps // stride) if ceil_mode else steps // stride) + 1
    outputs -= (outputs - 1) * stride >= inputs
    matrix = np.zeros((outputs, inputs))
    for row, start in zip(matrix, range(0, inputs, stride)):
        row[start : start + kernel] = 1 / min(kernel, inputs - start)
    return matrix
