"""Layers that compute in fp32 while the others compute in 16 bits."""

from collections.abc import Sequence

import paddle
from paddle import nn


class _Full:
    """A layer of one tensor that takes part in no automatic cast."""

    def __call__(self, x: paddle.Tensor) -> paddle.Tensor:  # not forward, which Paddle rewrites and loses super() in
        with paddle.amp.auto_cast(enable=False):
            return super().__call__(x.astype("float32"))


def convert_to_fp32(model: nn.Layer, names: Sequence[str]) -> None:
    """Let the named layers compute in fp32. Raises KeyError for a name that the model lacks."""
    layers = dict(model.named_sublayers())
    for name in names:
        kind = type(layers[name])
        layers[name].__class__ = type(kind.__name__, (_Full, kind), {})
