"""Floating-point operations of a forward pass, counted from the shapes of the weights.

Each element of a weight takes part in one multiply-add per output position, which is 2 operations. Normalizations,
activations, pooling, resizing and biases are not counted; other counters leave them out too.
"""

import math
from collections.abc import Callable, Mapping, Sequence


def of_weights(shape_of: Mapping[str, Sequence[int]], positions: Callable[[str], int]) -> int:
    """Return the operations of all convolutions and matrix products.

    Args:
        shape_of: shape of every tensor by name; those of one dimension belong to none of them.
        positions: function of the name of a weight that returns the number of its output positions in a sample, such
            as the pixels of a convolution's output or 1 for a classifier.
    """
    return 2 * sum(math.prod(shape) * positions(name) for name, shape in shape_of.items() if len(shape) > 1)


def pixels(height: int, width: int, halvings: int) -> int:
    """Return the pixels of a feature map after a number of layers of stride 2, each of which rounds up."""
    return -(-height >> halvings) * -(-width >> halvings)


def halvings_in_stages(name: str, strides: Sequence[int], strided: str) -> int:
    """Return how often layer1 to layer4 of a residual network have halved the image where a layer has its output.

    Args:
        name: of a tensor, layer{1..4}.{block}.{layer}...
        strides: of the first block of each stage; 1 or 2.
        strided: name of the first layer in a block that has the stride; layers that sort before it keep the size.
    """
    stage, block, layer = name.split(".")[:3]
    number = int(stage.removeprefix("layer"))
    is_before_stride = block == "0" and layer.startswith("conv") and layer < strided
    return strides[: number - is_before_stride].count(2)
