"""TSM on MobileNetV2 as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from collections.abc import Sequence

from zoo.models.onnx_graph import Graph
from zoo.models.tsm.onnx import shift_frame, temporal_shift
from zoo.models.tsm.spec import check_causal
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
    x = stem(graph, graph.reshape(video, -1, 3, height, width))
    for i, block in enumerate(blocks(arch)):
        scope, shifted = graph.scope(f"blocks.{i}"), x
        if block.has_shortcut:
            shifted = temporal_shift(scope, x, segments, arch.shift_div, arch.shift_direction)
        x = inverted_residual(scope, block, x, shifted)
    x = head(graph, x)
    return graph.mean(graph.reshape(x, -1, segments, graph.size(x, 1)), 1)


def build_frame(graph: Graph, arch: Arch, frame: str, state: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Add the next frame of a stream with a causal shift; see zoo/models/tsm/onnx.py."""
    check_causal(arch)
    x = stem(graph, frame)
    new_state: list[str] = []
    for i, block in enumerate(blocks(arch)):
        scope, shifted = graph.scope(f"blocks.{i}"), x
        if block.has_shortcut and block.inputs >= arch.shift_div:
            shifted, kept = shift_frame(scope, x, state[len(new_state)], arch.shift_div)
            new_state.append(kept)
        x = inverted_residual(scope, block, x, shifted)
    return head(graph, x), tuple(new_state)


def stem(graph: Graph, frames: str) -> str:
    """Add the first convolution: (N, 3, H, W) -> (N, C, H/2, W/2)."""
    return graph.relu6(graph.batch_norm("bn1", graph.conv("conv1", frames, 2, 1)))


def head(graph: Graph, x: str) -> str:
    """Add what follows the blocks: (N, C, H, W) -> logits (N, num_classes)."""
    x = graph.relu6(graph.batch_norm("bn2", graph.conv("conv2", x)))
    return graph.linear("fc", graph.flatten(graph.global_mean(x)))
