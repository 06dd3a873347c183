"""Forward and backward pass of the convolutions and matrix products of a model alone, in PyTorch.

Nothing else of an update is computed: the time below which no training loop gets with these kernels.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from zoo.bench.peers.updates.layers import Layer

FORMATS = {"convolutions": torch.contiguous_format, "convolutions, channels last": torch.channels_last}


def loops(layers: Sequence[Layer]) -> Mapping[str, Callable[[], None]]:
    """Return the loop in each memory format."""
    return {name: _loop(layers, memory_format) for name, memory_format in FORMATS.items()}


def _loop(layers: Sequence[Layer], memory_format: torch.memory_format) -> Callable[[], None]:
    tensors: dict[tuple[int, ...], torch.Tensor] = {}  # by shape: layers share them

    def tensor(*shape: int) -> torch.Tensor:
        if shape not in tensors:
            made = torch.randn(shape)
            tensors[shape] = made.contiguous(memory_format=memory_format) if len(shape) == 4 else made
        return tensors[shape]

    def update_of(layer: Layer) -> Callable[[], None]:
        x = tensor(*layer.shape)
        if layer.kernel == (0, 0):
            weight, gradient = tensor(layer.outputs, layer.shape[1]), tensor(layer.shape[0], layer.outputs)

            def product() -> None:
                torch.nn.functional.linear(x, weight)
                gradient @ weight
                gradient.t() @ x

            return product
        weight = tensor(layer.outputs, layer.shape[1] // layer.groups, *layer.kernel)
        window = layer.stride, layer.padding, layer.dilation
        gradient = tensor(*torch.nn.functional.conv2d(x, weight, None, *window, layer.groups).shape)
        wanted = [layer.needs_input_gradient, True, False]

        def convolution() -> None:
            torch.nn.functional.conv2d(x, weight, None, *window, layer.groups)
            torch.ops.aten.convolution_backward(gradient, x, weight, None, *window, False, [0, 0], layer.groups, wanted)

        return convolution

    updates = [update_of(layer) for layer in layers]

    def loop() -> None:
        for update in updates:
            update()

    return loop
