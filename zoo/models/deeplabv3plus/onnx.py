"""DeepLabV3+ as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone.

Height and width of the image may be those of the input. The auxiliary head, which trains the model, is left out.
"""

from zoo.models.deeplabv3plus.spec import Arch, stages
from zoo.models.onnx_graph import Graph
from zoo.models.resnet import onnx as resnet


def build(graph: Graph, arch: Arch, image: str) -> str:
    """Add DeepLabV3+: image (N, 3, H, W) float -> logits (N, num_classes, H, W)."""
    low, high = backbone(graph.scope("backbone"), arch, image)
    return graph.resize_like(head(graph.scope("head"), arch, low, high), image, arch.align_corners)


def backbone(graph: Graph, arch: Arch, x: str) -> tuple[str, str]:
    """Add the dilated ResNet: (N, 3, H, W) -> the outputs of layer1 (a quarter of the size) and layer4."""
    for number, (_, _, kernel, stride) in enumerate(arch.stem_convs, 1):
        x = graph.conv(f"conv{number}", x, stride, kernel // 2)
        x = graph.relu(graph.batch_norm(f"bn{number}", x))
    x = graph.max_pool(x, (3, 3), (2, 2), 1)
    outputs = []
    for number, stage in enumerate(stages(arch), 1):
        for i, dilation in enumerate(stage.dilations):
            x = run_block(graph.scope(f"layer{number}.{i}"), arch, x, stage.stride if i == 0 else 1, dilation)
        outputs.append(x)
    return outputs[0], outputs[3]


def run_block(graph: Graph, arch: Arch, x: str, stride: int, dilation: int) -> str:
    """Add a BasicBlock or Bottleneck, whose shortcut may average pixels."""
    residual = resnet.residual(graph, arch.backbone, x, stride, dilation)
    return graph.relu(graph.add(residual, shortcut(graph, arch, x, stride)))


def shortcut(graph: Graph, arch: Arch, x: str, stride: int) -> str:
    """Add the shortcut of a block; with avg_down, that of stride 2 averages 2x2 pixels, as in ResNet-vd."""
    if arch.avg_down and stride == 2:
        x, stride = graph.avg_pool(x, (2, 2), (2, 2)), 1
    return resnet.shortcut(graph, x, stride, arch.backbone.bn_eps)


def head(graph: Graph, arch: Arch, low: str, high: str) -> str:
    """Add atrous spatial pyramid pooling on layer4, fused with layer1 -> logits (N, num_classes, H/4, W/4)."""
    is_mmseg = arch.variant == "mmseg"
    pooled = graph.expand_like(conv_module(graph.scope("image_pool"), graph.global_mean(high), 1), high)
    branches = [conv_module(graph.scope("aspp.0"), high, 1)]
    for i, rate in enumerate(arch.rates, 1):
        branches.append(separable_conv_module(graph.scope(f"aspp.{i}"), high, rate, is_mmseg))
    branches = [pooled] + branches if is_mmseg else branches + [pooled]
    x = conv_module(graph.scope("bottleneck"), graph.concat(branches, 1), 3 if is_mmseg else 1)
    low = conv_module(graph.scope("low"), low, 1)
    x = graph.concat([graph.resize_like(x, low, arch.align_corners), low], 1)
    for i in range(2):
        x = separable_conv_module(graph.scope(f"fuse.{i}"), x, 1, is_mmseg)
    return graph.conv("classifier", x)


def conv_module(graph: Graph, x: str, kernel: int, dilation: int = 1, groups: int = 1, relu: bool = True) -> str:
    """Add a convolution that keeps the size, batch normalization and optionally ReLU."""
    x = graph.batch_norm("bn", graph.conv("conv", x, 1, kernel // 2 * dilation, dilation, groups))
    return graph.relu(x) if relu else x


def separable_conv_module(graph: Graph, x: str, dilation: int, is_mmseg: bool) -> str:
    """Add a depthwise separable convolution: a 3x3 depthwise, then a 1x1 pointwise convolution."""
    x = conv_module(graph.scope("depthwise"), x, 3, dilation, graph.size(x, 1), relu=is_mmseg)
    return conv_module(graph.scope("pointwise"), x, 1)
