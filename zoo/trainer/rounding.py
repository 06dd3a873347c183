"""Rounding of gradients in exact runs, by which the frameworks' updates become equal bit by bit.

In fp64, gradients of two frameworks differ by 1e-16 to 1e-13 of a tensor's largest element, because they sum in other
orders. Differences of weights grow from update to update. So gradients are rounded to multiples of a power of two,
about 2**-16 of the tensor's largest element: the results differ only if a number lies within 1e-13 of the middle of two
multiples. Everything after it is a product or a sum of single elements, which IEEE 754 defines bit by bit.

(x + c) - c is x rounded to a multiple of the spacing of the fp64 numbers at c; only the exponent of c matters.
"""

from collections.abc import Sequence
from typing import Any

FACTOR = 1.5 * 2.0**36  # c as a multiple of the largest element: fp64 numbers at c have a spacing of 2**-52 * c
FLOOR = 2.0**-20  # of the largest element of all tensors: the least that c is a multiple of


def round_gradients(ops: Any, gradients: Sequence[Any], shard_gradients: Sequence[Any] = ()) -> list[Any]:
    """Return rounded gradients, those of shards last.

    A gradient that is 0 but for noise, such as that of a bias before a normalization, becomes 0.

    Args:
        ops: of the framework.
        gradients: float64, of the model; the largest element of all is taken of these alone, since all ranks have them.
        shard_gradients: float64, of sharded parameters: this rank's rows.
    """
    floor = floor_of(ops, [ops.largest(gradient) for gradient in gradients])
    return [rounded(ops, gradient, floor) for gradient in (*gradients, *shard_gradients)]


def floor_of(ops: Any, largest: Sequence[Any]) -> Any:
    """Return the floor, given the largest elements of all tensors."""
    stacked = ops.stack(largest)
    return ops.number(FLOOR, stacked.dtype) * stacked.max()


def rounded(ops: Any, gradient: Any, floor: Any) -> Any:
    """Return a rounded gradient."""
    c = ops.number(FACTOR, gradient.dtype) * ops.maximum(ops.largest(gradient), floor)
    return (gradient + c) - c
