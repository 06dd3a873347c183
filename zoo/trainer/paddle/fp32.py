"""Layers that compute in fp32 while the rest of the model computes in 16 bits."""

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import nn


class _Fp32:
    """Mixin for a layer of one tensor: disables the automatic cast."""

    def __call__(self, x: paddle.Tensor) -> Any:  # not `forward`, which Paddle rewrites, losing super()
        with paddle.amp.auto_cast(enable=False):
            return super().__call__(x.astype("float32"))  # type: ignore[misc]


def convert_to_fp32(model: nn.Layer, names: Sequence[str]) -> None:
    """Make the named layers compute in fp32.

    Raises:
        KeyError: the model has no layer of this name.
    """
    layers = dict(model.named_sublayers())
    for name in names:
        layer_type = type(layers[name])
        layers[name].__class__ = type(layer_type.__name__, (_Fp32, layer_type), {})
