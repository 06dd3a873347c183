"""TSM as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from zoo.models.onnx_graph import Graph
from zoo.models.resnet import onnx as resnet
from zoo.models.resnet.spec import stages
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, Arch, shifts


def temporal_shift(graph: Graph, x: str, segments: int, div: int = 8, direction: str = "future") -> str:
    """Shift channels between neighbouring frames of the same clip (arXiv:1811.08383).

    With f = C // div, channels [0, f) come from the next frame and channels [f, 2f) from the previous one if
    `direction` is future, the other way round if it is past. The other channels stay. A frame without that neighbour
    gets zeros.

    Args:
        graph: to which it is added.
        x: (N*T, C, H, W), the frames of a clip one after the other.
        segments: T, frames per clip.
        div: 1 / div of the channels is shifted in each direction.
        direction: future or past.
    """
    channels, height, width = (graph.size(x, axis) for axis in (1, 2, 3))
    fold = channels // div
    if fold == 0:
        return x
    clips = graph.reshape(x, -1, segments, channels, height, width)
    folds = ((0, fold), (fold, 2 * fold))
    from_next, from_previous = folds if direction == "future" else folds[::-1]
    shifted = {
        from_next: graph.pad(graph.slice(clips, {1: (1, None), 2: from_next}), 1, 0, 1),
        from_previous: graph.pad(graph.slice(clips, {1: (0, -1), 2: from_previous}), 1, 1, 0),
    }
    parts = [shifted[part] for part in folds]
    if 2 * fold < channels:
        parts.append(graph.slice(clips, {2: (2 * fold, None)}))
    return graph.reshape(graph.concat(parts, 2), -1, channels, height, width)


def temporal_pool(graph: Graph, x: str, segments: int) -> str:
    """Max-pool over three neighbouring frames with stride 2: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    channels, height, width = (graph.size(x, axis) for axis in (1, 2, 3))
    frames = graph.reshape(x, -1, 1, segments, channels * height * width)
    pooled = graph.max_pool(frames, (3, 1), (2, 1), (1, 0, 0, 0))  # the first frame has no previous one
    return graph.reshape(pooled, -1, channels, height, width)


def non_local(graph: Graph, x: str, segments: int) -> str:
    """Add a non-local block (arXiv:1711.07971): embedded-Gaussian attention over all positions of a clip."""
    channels, height, width = (graph.size(x, axis) for axis in (1, 2, 3))
    half = channels // 2
    clips = graph.reshape(x, -1, segments, channels, height, width)
    clips = graph.transpose(clips, 0, 2, 1, 3, 4)  # (N, C, T, H, W)
    query = graph.transpose(graph.reshape(graph.conv("theta", clips), -1, half, segments * height * width), 0, 2, 1)
    positions = segments * (height // 2) * (width // 2)
    window = (1, 2, 2)
    key = graph.reshape(graph.max_pool(graph.conv("phi", clips), window, window), -1, half, positions)
    value = graph.reshape(graph.max_pool(graph.conv("g", clips), window, window), -1, half, positions)
    weights = graph.softmax(graph.matmul(query, key), -1)  # (N, THW, THW/4)
    attended = graph.matmul(weights, graph.transpose(value, 0, 2, 1))  # (N, THW, C/2)
    attended = graph.reshape(graph.transpose(attended, 0, 2, 1), -1, half, segments, height, width)
    x = graph.add(graph.batch_norm("bn", graph.conv("out", attended)), clips)
    return graph.reshape(graph.transpose(x, 0, 2, 1, 3, 4), -1, channels, height, width)


def build(graph: Graph, arch: Arch, video: str) -> str:
    """Add TSM: video (N, T, 3, H, W) float -> logits (N, num_classes)."""
    segments, height, width = (graph.size(video, axis) for axis in (1, 3, 4))
    backbone = arch.backbone
    x = resnet.stem(graph, backbone, graph.reshape(video, -1, 3, height, width))
    for number, (stage, shifted) in enumerate(zip(stages(backbone), shifts(arch)), 1):
        if number == 2 and arch.temporal_pool:
            x, segments = temporal_pool(graph, x, segments), segments // 2
        for i, has_shift in enumerate(shifted):
            block = graph.scope(f"layer{number}.{i}")
            x = run_block(block, arch, x, segments, stage.stride if i == 0 else 1, has_shift)
            if arch.non_local and i in NON_LOCAL_BLOCKS.get(number, ()):
                x = non_local(block.scope("nl"), x, segments)
    x = graph.linear("fc", graph.flatten(graph.global_mean(x)))
    return graph.mean(graph.reshape(x, -1, segments, graph.size(x, 1)), 1)


def run_block(graph: Graph, arch: Arch, x: str, segments: int, stride: int, has_shift: bool) -> str:
    """Add a block of the ResNet, with its shift if it has one."""
    backbone, residual_input = arch.backbone, x
    if has_shift:
        residual_input = temporal_shift(graph, x, segments, arch.shift_div, arch.shift_direction)
    if arch.shift_place == "block":
        x = residual_input
    # blockres: the shortcut gets the unshifted frames
    residual = resnet.residual(graph, backbone, residual_input, stride, 1)
    return graph.relu(graph.add(residual, resnet.shortcut(graph, x, stride, backbone.bn_eps)))
