"""TSM on MobileNetV2 as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from zoo.models.onnx_graph import Graph
from zoo.models.tsm.onnx import temporal_shift
from zoo.models.tsm_mobilenet_v2.spec import Arch, Block, blocks


def inverted_residual(graph: Graph, block: Block, x: str, residual_input: str) -> str:
    """Add a block of x; `residual_input`: what the residual branch gets instead of x."""
    residual = residual_input
    if block.expands:
        residual = graph.relu6(graph.batch_norm("bn1", graph.conv("expand", residual)))
    residual = graph.conv("depthwise", residual, block.stride, 1, groups=block.hidden)
    residual = graph.relu6(graph.batch_norm("bn2", residual))
    residual = graph.batch_norm("bn3", graph.conv("project", residual))
    return graph.add(x, residual) if block.has_shortcut else residual


def build(graph: Graph, arch: Arch, video: str) -> str:
    """Add TSM: video (N, T, 3, H, W) float -> logits (N, num_classes)."""
    segments, height, width = (graph.size(video, axis) for axis in (1, 3, 4))
    x = graph.conv("conv1", graph.reshape(video, -1, 3, height, width), 2, 1)
    x = graph.relu6(graph.batch_norm("bn1", x))
    for i, block in enumerate(blocks(arch)):
        scope = graph.scope(f"blocks.{i}")
        shifted = temporal_shift(scope, x, segments, arch.shift_div) if block.has_shortcut else x
        x = inverted_residual(scope, block, x, shifted)
    x = graph.relu6(graph.batch_norm("bn2", graph.conv("conv2", x)))
    x = graph.linear("fc", graph.flatten(graph.global_mean(x)))
    return graph.mean(graph.reshape(x, -1, segments, graph.size(x, 1)), 1)
