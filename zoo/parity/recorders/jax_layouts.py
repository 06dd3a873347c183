"""The layouts of Flax's and Equinox's weights, and how they become those of PyTorch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Layout(NamedTuple):
    """How a tensor of a program becomes a canonical one: by a reshape, an order of axes, and a flip.

    Attributes:
        shape: of the program's tensor.
        merged: shape before the order of axes is changed.
        flipped: axes of the canonical tensor.
    """

    shape: tuple[int, ...]
    merged: tuple[int, ...]
    order: tuple[int, ...]
    flipped: tuple[int, ...] = ()

    def canonical(self, array: np.ndarray) -> np.ndarray:
        return np.flip(array.reshape(self.merged).transpose(self.order), self.flipped)

    def own(self, array: np.ndarray) -> np.ndarray:
        ordered = tuple(self.merged[axis] for axis in self.order)
        array = np.flip(array.reshape(ordered), self.flipped)
        return array.transpose(np.argsort(self.order)).reshape(self.shape)


def layout_of(modules: Mapping[str, Any], name: str, shape: Sequence[int]) -> Layout:
    """Return the layout of a tensor, given its name and the modules of its program."""
    path, _, role = name.rpartition(".")
    module, shape = modules.get(path), tuple(shape)
    library = "" if module is None else type(module).__module__.partition(".")[0]
    kind = "" if module is None else type(module).__name__
    if role == "kernel" and _is_flax(modules):
        return _of_kernel(module, kind, shape)
    if role == "bias" and kind in ("DenseGeneral", "LinearGeneral"):  # of several axes, such as heads
        return Layout(shape, (math.prod(shape),), (0,))
    if role == "bias" and library == "equinox" and "Conv" in kind:  # (out, 1, 1)
        return Layout(shape, (shape[0],), (0,))
    if role == "weight" and library == "equinox" and kind.startswith("ConvTranspose"):  # (out, in, height, width)
        return Layout(shape, shape, (1, 0, *range(2, len(shape))), tuple(range(2, len(shape))))
    return Layout(shape, shape, tuple(range(len(shape))))


def _is_flax(modules: Mapping[str, Any]) -> bool:
    return any(cls.__module__.partition(".")[0] == "flax" for cls in type(modules[""]).__mro__)


def _of_kernel(module: Any, kind: str, shape: tuple[int, ...]) -> Layout:
    """Return the layout of Flax's kernels: (in, out) of dense layers, (height, width, in, out) of convolutions."""
    count = len(shape)
    if kind.startswith("ConvTranspose"):
        space = tuple(range(count - 2))
        if module.transpose_kernel:  # (height, width, out, in), as PyTorch's
            return Layout(shape, shape, (count - 1, count - 2, *space))
        return Layout(shape, shape, (count - 2, count - 1, *space), tuple(range(2, count)))
    if kind in ("DenseGeneral", "LinearGeneral"):
        axes = module.in_features if hasattr(module, "in_features") else module.axis
        inner = len(axes) if isinstance(axes, Sequence) else 1
        return Layout(shape, (math.prod(shape[:inner]), math.prod(shape[inner:])), (1, 0))
    if count == 2 or "Conv" in kind:
        return Layout(shape, shape, (count - 1, count - 2, *range(count - 2)))
    return Layout(shape, shape, tuple(range(count)))
