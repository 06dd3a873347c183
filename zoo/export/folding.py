"""Graphs whose batch normalizations are folded into the convolutions in front of them, as quantization needs it."""

import numpy as np

from zoo.models.onnx_graph import Graph

__all__ = ["FoldedGraph", "Graph"]


class FoldedGraph(Graph):
    """A graph in which a convolution and its normalization are one convolution with a bias."""

    def batch_norm(self, name: str, x: str, eps: float = 1e-5) -> str:
        """Fold the normalization into the convolution that has just been added; else add it."""
        node, initializers, tensors = self.parts.nodes[-1], self.parts.initializers, self.parts.tensors
        if node.op_type != "Conv" or node.output[0] != x:
            return super().batch_norm(name, x, eps)
        norm = self.prefix + name
        gamma, beta, mean, variance = (
            tensors[f"{norm}.{key}"].astype(np.float64) for key in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gamma / np.sqrt(variance + eps)
        weight = tensors[node.input[1]].astype(np.float64)
        bias = tensors[node.input[2]] if len(node.input) > 2 else 0
        folded = weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), (bias - mean) * scale + beta
        for key in node.input[1:]:
            del initializers[key]
        del node.input[1:]
        for key, array in zip(("weight", "bias"), folded):
            node.input.append(self.initializer(f"{x}.{key}", array.astype(np.float32)))
        return x
