"""Conversion of TSM weights between the two directions of the temporal shift.

A shift that takes the first fold of channels from the past and the second from the future equals the usual shift with
the two folds exchanged. The shift acts on the residual stream, so exchanging both folds in every tensor that writes to
this stream or reads from it reverses the direction. The converted model computes exactly the same function: ReLU,
pooling and normalization act per channel, and both sides of every residual sum have the same channel order.
"""

import re
from collections.abc import Mapping

import numpy as np

STREAM_OUTPUTS = (
    r"conv1\.weight|bn1\..*|layer\d\.\d+\.(conv{last}\.weight|bn{last}\..*|downsample\..*|nl\.(out|bn)\..*)"
)
STREAM_INPUTS = r"layer\d\.\d+\.(conv1|downsample\.0|nl\.(theta|phi|g))\.weight|fc\.weight"


def reverse_shift(tensors: Mapping[str, np.ndarray], shift_div: int) -> dict[str, np.ndarray]:
    """Convert canonical tensors of a TSM to the other shift direction; applied twice, this is the identity.

    Args:
        tensors: All tensors of the model; those that do not touch the residual stream are returned as they are.
        shift_div: The model shifts 1/shift_div of the channels each way.
    """
    last = 3 if any(name.endswith(".conv3.weight") for name in tensors) else 2  # last convolution of a block
    outputs, inputs = re.compile(STREAM_OUTPUTS.format(last=last)), re.compile(STREAM_INPUTS)
    result = {}
    for name, tensor in tensors.items():
        if outputs.fullmatch(name):
            tensor = _swap_folds(tensor, 0, shift_div)
        if inputs.fullmatch(name):
            tensor = _swap_folds(tensor, 1, shift_div)
        result[name] = tensor
    return result


def _swap_folds(tensor: np.ndarray, axis: int, shift_div: int) -> np.ndarray:
    """Exchange the first two folds of an axis."""
    fold = tensor.shape[axis] // shift_div
    order = np.arange(tensor.shape[axis])
    order[:fold], order[fold : 2 * fold] = np.arange(fold, 2 * fold), np.arange(fold)
    return np.take(tensor, order, axis)
