"""TSM weights made for a shift that looks the other way, rewritten into the same function: exact, in every place.

A shift that takes its first fold of channels from the past and its second from the future is the usual one on
channels in another order. What a shift sees is the stream of residual sums, so exchanging the two folds in every
tensor that writes to this stream or reads from it turns one direction into the other. ReLU, pooling and normalisation
work channel by channel, and the order is the same on both sides of every sum.
"""

import re
from collections.abc import Mapping

import numpy as np

WRITES = r"conv1\.weight|bn1\..*|layer\d\.\d+\.(conv{last}\.weight|bn{last}\..*|downsample\..*|nl\.(out|bn)\..*)"
READS = r"layer\d\.\d+\.(conv1|downsample\.0|nl\.(theta|phi|g))\.weight|fc\.weight"


def reverse(tensors: Mapping[str, np.ndarray], shift_div: int) -> dict[str, np.ndarray]:
    """Canonical tensors of a net that shifts 1/shift_div of the channels each way -> those for the other direction.

    Twice is the identity. Tensors that touch no stream are the same objects.
    """
    last = 3 if any(name.endswith(".conv3.weight") for name in tensors) else 2  # the block's last convolution
    writes, reads = re.compile(WRITES.format(last=last)), re.compile(READS)
    result = {}
    for name, tensor in tensors.items():
        if writes.fullmatch(name):
            tensor = _exchanged(tensor, 0, shift_div)
        if reads.fullmatch(name):
            tensor = _exchanged(tensor, 1, shift_div)
        result[name] = tensor
    return result


def _exchanged(tensor: np.ndarray, axis: int, shift_div: int) -> np.ndarray:
    """The tensor with its first two folds of an axis in each other's place."""
    fold = tensor.shape[axis] // shift_div
    order = np.arange(tensor.shape[axis])
    order[:fold], order[fold : 2 * fold] = np.arange(fold, 2 * fold), np.arange(fold)
    return np.take(tensor, order, axis)
