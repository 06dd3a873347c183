"""Forward and backward pass of the convolutions and matrix products of a model alone, in Paddle."""

from collections.abc import Callable, Mapping, Sequence

import paddle
import paddle.nn.functional as F

from zoo.bench.peers.updates.layers import Layer


def loops(layers: Sequence[Layer]) -> Mapping[str, Callable[[], None]]:
    """Return the loop."""
    updates = [_update_of(layer) for layer in layers]

    def loop() -> None:
        for update in updates:
            update()

    return {"convolutions": loop}


def _update_of(layer: Layer) -> Callable[[], None]:
    x = paddle.randn(layer.shape)
    x.stop_gradient = not layer.needs_input_gradient
    inputs = layer.shape[1]
    is_product = layer.kernel == (0, 0)
    shape = [inputs, layer.outputs] if is_product else [layer.outputs, inputs // layer.groups, *layer.kernel]
    weight = paddle.randn(shape)
    weight.stop_gradient = False
    wanted = [x, weight] if layer.needs_input_gradient else [weight]

    def forward() -> paddle.Tensor:
        if is_product:
            return F.linear(x, weight)
        return F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)

    gradient = paddle.randn(forward().shape)

    def update() -> None:
        paddle.grad(forward(), wanted, gradient)

    return update
