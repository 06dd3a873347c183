"""Forward and backward pass of the convolutions and matrix products of a model alone, as one graph of MindSpore."""

from collections.abc import Callable, Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

from zoo.bench.peers.updates.layers import Layer


def loops(layers: Sequence[Layer]) -> Mapping[str, Callable[[], None]]:
    """Return the loop. Inputs of equal shape are one tensor."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    rng = np.random.default_rng(0)
    shared = {layer.shape: _random(rng, layer.shape) for layer in layers}
    inputs = mindspore.mutable([shared[layer.shape] for layer in layers])  # else the compiler takes them for constants
    weights = mindspore.mutable([_random(rng, _weight_shape(layer)) for layer in layers])
    passes = Passes(layers)

    def loop() -> None:
        passes(inputs, weights).asnumpy()

    return {"convolutions": loop}


class Passes(nn.Cell):
    """(inputs of the layers, their weights) -> the last result, which waits for all others.

    The layers run one after the other, as in a model, and then their backward passes in the opposite order.
    """

    def __init__(self, layers: Sequence[Layer]):
        super().__init__()
        self.forwards = nn.CellList([Product() if _is_product(layer) else Convolution(layer) for layer in layers])
        self.backwards = nn.CellList([Backward(forward) for forward in self.forwards])
        self.need_input_gradients = tuple(layer.needs_input_gradient for layer in layers)
        self.numbers = tuple(range(len(layers)))

    def construct(self, inputs, weights):
        outputs, last = [], inputs[0]
        for i in self.numbers:
            last = self.forwards[i](ops.depend(inputs[i], last), weights[i])
            outputs.append(last)
        for i in self.numbers[::-1]:
            # The output serves as its own gradient, and is kept until then, as activations are.
            gradients = self.backwards[i](inputs[i], weights[i], ops.depend(outputs[i], last))
            last = gradients[1]
            if self.need_input_gradients[i]:
                last = ops.depend(gradients[0], last)
        return last


class Convolution(nn.Cell):
    """(x, weight) -> their convolution."""

    def __init__(self, layer: Layer):
        super().__init__()
        (top, left), window = layer.padding, (layer.stride, layer.dilation, layer.groups)
        self.conv2d = ops.Conv2D(layer.outputs, layer.kernel, 1, "pad", (top, top, left, left), *window)

    def construct(self, x, weight):
        return self.conv2d(x, weight)


class Product(nn.Cell):
    """(x, weight) -> x times the transposed weight."""

    def __init__(self):
        super().__init__()
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, x, weight):
        return self.matmul(x, weight)


class Backward(nn.Cell):
    """(x, weight, gradient of the output) -> gradients of both."""

    def __init__(self, forward: nn.Cell):
        super().__init__()
        self.forward, self.grad = forward, ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, x, weight, gradient):
        return self.grad(self.forward)(x, weight, gradient)


def _is_product(layer: Layer) -> bool:
    return layer.kernel == (0, 0)


def _weight_shape(layer: Layer) -> tuple[int, ...]:
    inputs = layer.shape[1]
    return (layer.outputs, inputs) if _is_product(layer) else (layer.outputs, inputs // layer.groups, *layer.kernel)


def _random(rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return Tensor(rng.standard_normal(shape, np.float32))
