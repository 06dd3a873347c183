"""TSM as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from collections.abc import Sequence

from zoo.models.onnx_graph import Graph
from zoo.models.resnet import onnx as resnet
from zoo.models.resnet.spec import stages
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, SHIFT_OFFSETS, Arch, check_causal, shifts


def temporal_shift(graph: Graph, x: str, segments: int, div: int = 8, direction: str = "future") -> str:
    """Shift channels between neighbouring frames of the same clip: see zoo/models/tsm/torch.py."""
    channels, height, width = (graph.size(x, axis) for axis in (1, 2, 3))
    fold = channels // div
    if fold == 0:
        return x
    clips = graph.reshape(x, -1, segments, channels, height, width)
    parts, offsets = [], SHIFT_OFFSETS[direction]
    for i, offset in enumerate(offsets):
        moved = (i * fold, (i + 1) * fold)
        if offset == 1:  # from the next frame
            parts.append(graph.pad(graph.slice(clips, {1: (1, None), 2: moved}), 1, 0, 1))
        else:
            parts.append(graph.pad(graph.slice(clips, {1: (0, -1), 2: moved}), 1, 1, 0))
    if len(offsets) * fold < channels:
        parts.append(graph.slice(clips, {2: (len(offsets) * fold, None)}))
    return graph.reshape(graph.concat(parts, 2), -1, channels, height, width)


def shift_frame(graph: Graph, x: str, previous: str, div: int) -> tuple[str, str]:
    """Shift a single frame causally: see zoo/models/tsm/torch.py."""
    fold = graph.size(x, 1) // div
    shifted = graph.concat([previous, graph.slice(x, {1: (fold, None)})], 1)
    return shifted, graph.slice(x, {1: (0, fold)})


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
            block, shifted_x = graph.scope(f"layer{number}.{i}"), x
            if has_shift:
                shifted_x = temporal_shift(block, x, segments, arch.shift_div, arch.shift_direction)
            x = run_block(block, arch, x, shifted_x, stage.stride if i == 0 else 1)
            if arch.non_local and i in NON_LOCAL_BLOCKS.get(number, ()):
                x = non_local(block.scope("nl"), x, segments)
    x = graph.linear("fc", graph.flatten(graph.global_mean(x)))
    return graph.mean(graph.reshape(x, -1, segments, graph.size(x, 1)), 1)


def build_frame(graph: Graph, arch: Arch, frame: str, state: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Add the next frame of a stream with a causal shift: `forward_frame` of torch.py."""
    check_causal(arch)
    x = resnet.stem(graph, arch.backbone, frame)
    new_state: list[str] = []
    for number, (stage, has_shifts) in enumerate(zip(stages(arch.backbone), shifts(arch)), 1):
        for i, has_shift in enumerate(has_shifts):
            block, shifted = graph.scope(f"layer{number}.{i}"), x
            if has_shift and graph.size(x, 1) >= arch.shift_div:
                shifted, kept = shift_frame(block, x, state[len(new_state)], arch.shift_div)
                new_state.append(kept)
            x = run_block(block, arch, x, shifted, stage.stride if i == 0 else 1)
    return graph.linear("fc", graph.flatten(graph.global_mean(x))), tuple(new_state)


def run_block(graph: Graph, arch: Arch, x: str, shifted: str, stride: int) -> str:
    """Add a block of the ResNet for x and what the shift makes of it."""
    backbone = arch.backbone
    if arch.shift_place == "block":
        x = shifted
    # blockres: the shortcut gets the unshifted frames
    residual = resnet.residual(graph, backbone, shifted, stride, 1)
    return graph.relu(graph.add(residual, resnet.shortcut(graph, x, stride, backbone.bn_eps)))
