"""IResNet as an ONNX graph, parallel to torch.py, paddle.py and mindspore.py; for inference alone."""

from zoo.models.arcface.spec import Arch, stages
from zoo.models.onnx_graph import Graph
from zoo.models.resnet.onnx import conv3x3, shortcut


def run_block(graph: Graph, arch: Arch, x: str, is_first: bool) -> str:
    """Add a pre-activation residual block: two 3x3 convolutions, the second with the stride."""
    stride, eps = 2 if is_first else 1, arch.epsilon
    residual = conv3x3(graph, "conv1", graph.batch_norm("bn1", x, eps), 1, 1)
    residual = graph.prelu("prelu", graph.batch_norm("bn2", residual, eps))
    residual = graph.batch_norm("bn3", conv3x3(graph, "conv2", residual, stride, 1), eps)
    return graph.add(residual, shortcut(graph, x, stride, eps))


def build(graph: Graph, arch: Arch, image: str) -> str:
    """Add IResNet: image (N, 3, H, W) float -> embeddings (N, embedding), not normalized."""
    x = graph.batch_norm("bn1", conv3x3(graph, "conv1", image, 1, 1), arch.epsilon)
    x = graph.prelu("prelu", x)
    for number, (blocks, _) in enumerate(stages(arch), 1):
        for i in range(blocks):
            x = run_block(graph.scope(f"layer{number}.{i}"), arch, x, i == 0)
    x = graph.flatten(graph.batch_norm("bn2", x, arch.epsilon))
    return graph.batch_norm("features", graph.linear("fc", x), arch.epsilon)
