"""Layers of the graph of an exported model: standard ONNX operators, with weights by canonical name.

A value of the graph is its name, a string. The methods are named after the functions of PyTorch that a model's torch.py
calls, and a layer's name is that of its attribute there, so that zoo/models/<model>/onnx.py reads beside the other
three.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import helper

from zoo.models.onnx_nodes import Nodes

INT64_MAX = 2**63 - 1  # end of a slice that has none
Padding = int | Sequence[int]  # on all sides, or on each: first those before, then those behind, of every axis


class Graph(Nodes):
    """A graph in construction, or the scope of a module in it."""

    def conv(self, name: str, x: str, stride: int = 1, padding: Padding = 0, dilation: int = 1, groups: int = 1) -> str:
        """Convolve x (N, C, ...) with `<name>.weight`, and add `<name>.bias` if there is one."""
        layer, axes = self.scope(name), len(self.shape(x)) - 2
        tensors = [layer.weight(tensor) for tensor in ("weight", "bias") if tensor == "weight" or layer.has(tensor)]
        return self.node(
            "Conv",
            x,
            *tensors,
            name=name,
            strides=[stride] * axes,
            dilations=[dilation] * axes,
            group=groups,
            kernel_shape=self.shape(tensors[0])[2:],  # which ONNX does not need, but OpenCV 4 does
            pads=_pads(padding, axes),
        )

    def batch_norm(self, name: str, x: str, eps: float = 1e-5) -> str:
        """Normalize x (N, C, ...) by running statistics."""
        layer = self.scope(name)
        tensors = [layer.weight(tensor) for tensor in ("weight", "bias", "running_mean", "running_var")]
        return self.node("BatchNormalization", x, *tensors, name=name, epsilon=eps)

    def linear(self, name: str, x: str) -> str:
        """Multiply x (N, C) by the transposed `<name>.weight`, and add `<name>.bias`."""
        layer = self.scope(name)
        return self.node("Gemm", x, layer.weight("weight"), layer.weight("bias"), name=name, transB=1)

    def prelu(self, name: str, x: str) -> str:
        """Apply PReLU to x (N, C, H, W) with the slopes `<name>.weight`, one or C."""
        slopes = self.scope(name).weight("weight", (-1, 1, 1))
        return self.node("PRelu", x, slopes, name=name)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def add(self, a: str, b: str) -> str:
        return self.node("Add", a, b)

    def cast(self, x: str, dtype: type[np.generic]) -> str:
        return self.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def matmul(self, a: str, b: str) -> str:
        return self.node("MatMul", a, b)

    def softmax(self, x: str, axis: int) -> str:
        return self.node("Softmax", x, axis=axis)

    def concat(self, values: Sequence[str], axis: int) -> str:
        return self.node("Concat", *values, axis=axis)

    def transpose(self, x: str, *axes: int) -> str:
        return self.node("Transpose", x, perm=axes)

    def reshape(self, x: str, *sizes: int) -> str:
        """Reshape x; a size of 0 is that of x at the same place, one of -1 follows from the others."""
        return self.node("Reshape", x, self.integers(*sizes))

    def flatten(self, x: str) -> str:
        """Reshape x (N, ...) to (N, product of the other sizes)."""
        return self.node("Flatten", x, axis=1)

    def mean(self, x: str, *axes: int, keepdim: bool = False) -> str:
        return self.node("ReduceMean", x, self.integers(*axes), keepdims=int(keepdim))

    def global_mean(self, x: str) -> str:
        """Average x (N, C, H, W) over all pixels: (N, C, 1, 1)."""
        return self.node("GlobalAveragePool", x)

    def max_pool(self, x: str, kernel: Sequence[int], stride: Sequence[int], padding: Padding = 0) -> str:
        """Pool x (N, C, ...); what is padded is never the maximum."""
        return self.node("MaxPool", x, kernel_shape=kernel, strides=stride, pads=_pads(padding, len(kernel)))

    def avg_pool(self, x: str, kernel: Sequence[int], stride: Sequence[int]) -> str:
        """Average windows of x (N, C, ...), those that reach beyond its end over what they have of it."""
        return self.node("AveragePool", x, kernel_shape=kernel, strides=stride, ceil_mode=1)

    def slice(self, x: str, ranges: Mapping[int, tuple[int | None, int | None]]) -> str:
        """Take a part of x. ranges: axis -> start and end as Python has them, None for the first or last element."""
        starts = self.integers(*(start or 0 for start, _ in ranges.values()))
        ends = self.integers(*(INT64_MAX if end is None else end for _, end in ranges.values()))
        return self.node("Slice", x, starts, ends, self.integers(*ranges))

    def pad(self, x: str, axis: int, before: int, after: int) -> str:
        """Add zeros before and behind x along an axis."""
        padding, zero = self.integers(before, after), self.constant(np.float32(0))
        return self.node("Pad", x, padding, zero, self.integers(axis))

    def expand_like(self, x: str, other: str) -> str:
        """Repeat the pixel of x (N, C, 1, 1) to the height and width of another value."""
        return self._sized_like(x, other, self.node("Expand", x, self._sizes(x, other)))

    def resize_like(self, x: str, other: str, align_corners: bool) -> str:
        """Resize x (N, C, h, w) bilinearly to the height and width of another value."""
        mode = "align_corners" if align_corners else "half_pixel"
        sizes = self._sizes(x, other)
        y = self.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)
        return self._sized_like(x, other, y)

    def _sizes(self, x: str, other: str) -> str:
        """Return a tensor (4,): the sizes of x, with the height and width of another value."""
        return self.concat([self.node("Shape", x, end=2), self.node("Shape", other, start=2)], 0)

    def _sized_like(self, x: str, other: str, y: str) -> str:
        """Record the sizes of y that are those of x and of another value, which ONNX cannot infer from a tensor."""
        dtype = self.parts.types[x].tensor_type.elem_type
        shape = self.shape(x)[:2] + self.shape(other)[2:]
        self.parts.types[y] = helper.make_tensor_type_proto(dtype, shape)
        return y


def _pads(padding: Padding, axes: int) -> Sequence[int]:
    return [padding] * 2 * axes if isinstance(padding, int) else padding


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
