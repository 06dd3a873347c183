"""Forward and backward pass of the convolutions and matrix products of a model alone, in MindSpore's graph mode."""

from collections.abc import Callable, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import ops

from tools.peers.updates.layers import Layer


def loops(layers: Sequence[Layer]) -> Mapping[str, Callable[[], None]]:
    """Return the loop. Layers of equal shape share a compiled graph."""
    graphs: dict[Layer, Callable[[], mindspore.Tensor]] = {}
    for layer in layers:
        if layer not in graphs:
            graphs[layer] = _graph_of(layer)
    updates = [graphs[layer] for layer in layers]

    def loop() -> None:
        for update in updates:
            result = update()
        result.asnumpy()

    return {"convolutions": loop}


def _graph_of(layer: Layer) -> Callable[[], mindspore.Tensor]:
    rng, inputs = np.random.default_rng(0), layer.shape[1]
    is_product = layer.kernel == (0, 0)
    shape = (layer.outputs, inputs) if is_product else (layer.outputs, inputs // layer.groups, *layer.kernel)
    x, weight = (mindspore.Tensor(rng.standard_normal(size, np.float32)) for size in (layer.shape, shape))
    window = layer.stride, "pad", layer.padding, layer.dilation, layer.groups

    def forward(x: mindspore.Tensor, weight: mindspore.Tensor) -> mindspore.Tensor:
        if is_product:
            return ops.matmul(x, weight.T)
        return ops.conv2d(x, weight, None, *window)

    positions = (0, 1) if layer.needs_input_gradient else 1
    gradient = mindspore.jit(mindspore.grad(forward, positions))

    def update() -> mindspore.Tensor:
        result = gradient(x, weight)
        return result[1] if layer.needs_input_gradient else result

    return update
