"""The layouts in which the tensors of two modules correspond."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.parity.mapping import Source, names_of

ROLES = ("weight", "bias", "running_mean", "running_var")
BIASES = ("bias_ih", "bias_hh", "bias")  # of recurrent cells
KERNELS = ((2, 1, 0), (3, 2, 0, 1), (4, 3, 0, 1, 2))  # axes of (..., in, out) that make (out, in, ...)
ORDERS = {2: ((1, 0),), **{len(axes): (axes, tuple(np.argsort(axes).tolist())) for axes in KERNELS}}


def size(tensor: Any) -> int:
    return math.prod(tensor.shape)


def pair(ours: Sequence[Any], theirs: Sequence[Any], rule: str) -> dict[str, Source]:
    """Pair the tensors of two modules: by role, then those of unknown roles whose shapes fit one only.

    Args:
        ours: tensors with name, shape and role.

    Returns:
        The source by name in theirs.
    """
    by_role, found = {tensor.role: tensor for tensor in ours}, dict[str, Source]()
    for tensor in theirs:
        same = by_role.get(tensor.role)
        if same is not None and (steps := change(same.shape, tensor.shape)) is not None:
            found[tensor.name] = Source((same.name,), steps, rule)
    found |= _biases(by_role, {tensor.role: tensor for tensor in theirs})
    used = names_of(found)
    rest = [tensor for tensor in ours if tensor.name not in used]
    open_ = [tensor for tensor in theirs if tensor.name not in found]
    fits = [
        (a, b, steps)
        for a in rest
        for b in open_
        if not (a.role in ROLES and b.role in ROLES) and (steps := change(a.shape, b.shape)) is not None
    ]
    for a, b, steps in fits:
        if sum(a is x or b is y for x, y, _ in fits) == 1:
            found[b.name] = Source((a.name,), steps, rule)
    return found


def _biases(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Source]:
    """Pair the biases of recurrent cells of which one has a bias for the input and for the state, and one their sum."""
    our, their = ([tensors[role] for role in BIASES if role in tensors] for tensors in (ours, theirs))
    weight = ours.get("weight_hh")
    if weight is None or weight.shape[0] == 3 * weight.shape[1]:  # a GRU multiplies only one of them by its gate
        return {}
    if (len(our), len(their)) == (2, 1) and {tensor.shape for tensor in our} == {their[0].shape}:
        return {their[0].name: Source(tuple(tensor.name for tensor in our), (("sum",),), "gates")}
    if (len(our), len(their)) == (1, 2) and {tensor.shape for tensor in their} == {our[0].shape}:
        return {
            b.name: Source((our[0].name,), steps, "gates") for b, steps in zip(their, ((), (("zeros",),)), strict=True)
        }
    return {}


def change(shape: Sequence[int], wanted: Sequence[int]) -> tuple[tuple, ...] | None:
    """Return the steps that give a tensor another layout; None if there are none.

    A tensor of the wanted shape stays as it is.
    """
    shape, wanted = tuple(shape), tuple(wanted)
    if shape == wanted:
        return ()
    if [length for length in shape if length != 1] == [length for length in wanted if length != 1]:
        return (("reshape", list(shape), list(wanted)),)
    if len(shape) == len(wanted):
        for order in ORDERS.get(len(shape), ()):
            if tuple(shape[axis] for axis in order) == wanted:
                return (("transpose", list(order)),)
    if len(shape) != len(wanted) and is_merged(shape, wanted):
        return (("reshape", list(shape), list(wanted)),)
    return None


def unflattened(shape: Sequence[int], channels: int, is_last: bool) -> tuple[tuple, ...]:
    """Return the steps for the weight of a dense layer behind feature maps, from channels first to last or back.

    Args:
        shape: of the weight, (out, in).
        channels: of the maps, whose elements are its inputs.
        is_last: whether they become the last axis.
    """
    count = shape[1] // channels
    if count * channels != shape[1] or 1 in (count, channels):
        return ()
    before, after = [shape[0], channels, count], [shape[0], count, channels]
    if not is_last:
        before, after = after, before
    return ("reshape", list(shape), before), ("transpose", [0, 2, 1]), ("reshape", after, list(shape))


def is_merged(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether one shape is the other one with neighboring axes merged: heads, or the window of a convolution."""
    short, long = sorted((shape, wanted), key=len)
    count = len(long) - len(short) + 1
    merged = [(*long[:i], math.prod(long[i : i + count]), *long[i + count :]) for i in range(len(short))]
    return short in merged
