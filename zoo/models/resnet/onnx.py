"""ResNet v1.5 as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from zoo.models.onnx_graph import Graph, Padding
from zoo.models.resnet.spec import Arch, same_padding, stages


def residual(graph: Graph, arch: Arch, x: str, stride: int, dilation: int) -> str:
    """Add the residual branch of a block, to which the shortcut is added."""
    return (bottleneck if arch.expansion == 4 else basic)(graph, arch, x, stride, dilation)


def basic(graph: Graph, arch: Arch, x: str, stride: int, dilation: int) -> str:
    """Add the residual branch of a BasicBlock."""
    x = conv3x3(graph, "conv1", x, stride, dilation, arch.same_convs)
    x = graph.relu(graph.batch_norm("bn1", x, arch.bn_eps))
    return graph.batch_norm("bn2", conv3x3(graph, "conv2", x, 1, 1), arch.bn_eps)


def bottleneck(graph: Graph, arch: Arch, x: str, stride: int, dilation: int) -> str:
    """Add the residual branch of a Bottleneck."""
    x = graph.relu(graph.batch_norm("bn1", graph.conv("conv1", x), arch.bn_eps))
    x = conv3x3(graph, "conv2", x, stride, dilation, arch.same_convs)
    x = graph.relu(graph.batch_norm("bn2", x, arch.bn_eps))
    return graph.batch_norm("bn3", graph.conv("conv3", x), arch.bn_eps)


def build(graph: Graph, arch: Arch, image: str) -> str:
    """Add ResNet: image (N, 3, H, W) float -> logits (N, num_classes)."""
    x = stem(graph, arch, image)
    for number, stage in enumerate(stages(arch), 1):
        for i in range(stage.blocks):
            stride, dilation = (stage.stride, stage.first_dilation) if i == 0 else (1, stage.dilation)
            block = graph.scope(f"layer{number}.{i}")
            branches = residual(block, arch, x, stride, dilation), shortcut(block, x, stride, arch.bn_eps)
            x = graph.relu(graph.add(*branches))
    return graph.linear("fc", graph.flatten(graph.global_mean(x)))


def stem(graph: Graph, arch: Arch, x: str) -> str:
    """Return the input of layer1: (N, 3, H, W) -> (N, width, H/4, W/4)."""
    x = graph.conv("conv1", x, 2, same(graph, x, 7) if arch.same_convs else 3)
    x = graph.relu(graph.batch_norm("bn1", x, arch.bn_eps))
    return graph.max_pool(x, (3, 3), (2, 2), same(graph, x, 3) if arch.same_pool else 1)


def conv3x3(graph: Graph, name: str, x: str, stride: int, dilation: int, has_same: bool = False) -> str:
    """Add a 3x3 convolution; with stride 1 it keeps the size, and both paddings are equal."""
    return graph.conv(name, x, stride, same(graph, x, 3, dilation) if has_same and stride > 1 else dilation, dilation)


def same(graph: Graph, x: str, kernel: int, dilation: int = 1) -> Padding:
    """Return the padding `same` of an operator of stride 2 for x; ONNX Runtime's own one knows no dilation."""
    left, right, top, bottom = same_padding(graph.size(x, 2), graph.size(x, 3), kernel, 2, dilation)
    return top, left, bottom, right


def shortcut(graph: Graph, x: str, stride: int, eps: float) -> str:
    """Add the shortcut: the identity, or a strided 1x1 convolution where the shape changes."""
    if not graph.has("downsample.0.weight"):
        return x
    return graph.batch_norm("downsample.1", graph.conv("downsample.0", x, stride), eps)
