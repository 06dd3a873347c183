"""The weights of an ONNX file, in the layouts of PyTorch's modules."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.parity.recorders.common import ROLES
from zoo.parity.recorders.onnx_graph import Graph, Node, attribute

NAMED = re.compile(
    r"(?!val_\d+$|_?lifted|scalar_tensor)[A-Za-z_][\w.]*"
)  # that PyTorch's exporters take from the model
AFFINE = {1: "weight", 2: "bias"}
OPERATORS = {  # roles of inputs, by operator
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "InstanceNormalization"), AFFINE),
    **dict.fromkeys(("LayerNormalization", "GroupNormalization"), AFFINE),
    "BatchNormalization": {**AFFINE, 3: "running_mean", 4: "running_var"},
    "MatMul": {1: "weight"},
    "PRelu": {1: "weight"},
    "Gather": {0: "weight"},
    "Add": {0: "bias", 1: "bias"},
    "Mul": {0: "weight", 1: "weight"},
}
SUMS = ("Add", "Mul")  # of which those of PyTorch's modules have names
BLOCKS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # PyTorch's gates among those of ONNX


class Weight(NamedTuple):
    """A tensor of PyTorch's layout: the elements of an initializer at an index, perhaps transposed."""

    name: str
    initializer: str
    module: str
    role: str
    index: Any = ...
    is_transposed: bool = False

    def get(self, initializers: dict[str, np.ndarray]) -> np.ndarray:
        array = initializers[self.initializer][self.index]
        return array.T if self.is_transposed else array

    def set(self, initializers: dict[str, np.ndarray], array: np.ndarray) -> None:
        own = np.array(initializers[self.initializer])
        value = array.T if self.is_transposed else array
        own[self.index] = value.reshape(own[self.index].shape)
        initializers[self.initializer] = own


def weights_of(graph: Graph) -> list[Weight]:
    """Return the weights of a graph.

    Raises:
        UserError: the exporter made others of them, as of a convolution and the normalization behind it.
    """
    is_torch, found = graph.proto.producer_name == "pytorch", dict[str, Weight]()
    taken: set[str] = set()
    for node in graph.nodes:
        path = node.scopes[-1] if node.scopes else ""
        for weight in _of_node(graph, node, path, is_torch):
            if weight.initializer in taken and weight.index is ...:
                continue
            taken.add(weight.initializer)
            name = weight.name
            while name in found:
                name += "_"
            found[name] = weight._replace(name=name)
    return list(found.values())


def _of_node(graph: Graph, node: Node, path: str, is_torch: bool) -> Iterator[Weight]:
    operator, floats = node.proto.op_type, _floats(graph, node)
    if operator == "Conv":
        _require_own(node, path)
    if operator in BLOCKS:
        yield from _recurrent(graph, node, path, floats)
        return
    for place, name in floats.items():
        module, _, own = name.rpartition(".")
        role = OPERATORS.get(operator, {}).get(place, "")
        if is_torch and NAMED.fullmatch(name):
            yield Weight(name, name, module, ROLES.get(own, own))
        elif role and graph.initializers[name].size > 1 and (operator not in SUMS or not is_torch):
            is_matrix = operator == "MatMul" or (operator == "Gemm" and not attribute(node.proto, "transB", 0))
            is_transposed = is_matrix and role == "weight" and graph.initializers[name].ndim == 2
            yield Weight(f"{path}.{role}" if path else role, name, path, role, is_transposed=is_transposed)


def _floats(graph: Graph, node: Node) -> dict[int, str]:
    """Return the initializers among a node's inputs that have several dimensions or elements."""
    named = {place: name for place, name in enumerate(node.proto.input) if name in graph.initializers}
    return {
        n: name
        for n, name in named.items()
        if graph.initializers[name].dtype.kind == "f" and graph.initializers[name].ndim
    }


def _require_own(node: Node, path: str) -> None:
    """Raise UserError if a convolution has a normalization within it."""
    is_folded = node.proto.input[1].startswith("onnx::Conv") or "BatchNorm" in (node.classes or ("",))[-1]
    if is_folded:
        raise UserError(
            f"ONNX: {path} is a convolution with a normalization, whose weights the exporter has multiplied; "
            "export with optimize=False or, where dynamo=False, with training=torch.onnx.TrainingMode.PRESERVE"
        )


def _recurrent(graph: Graph, node: Node, path: str, floats: dict[int, str]) -> Iterator[Weight]:
    """Yield the weights of each direction of a layer, with PyTorch's order of the gates."""
    before = [each for each in graph.nodes if each.proto.op_type in BLOCKS and each.scopes == node.scopes]
    layer = next(number for number, each in enumerate(before) if each.proto is node.proto)
    blocks, size = BLOCKS[node.proto.op_type], attribute(node.proto, "hidden_size", 0)
    rows = np.concatenate([np.arange(block * size, (block + 1) * size) for block in blocks])
    parts = {
        1: (("weight_ih", rows),),
        2: (("weight_hh", rows),),
        3: (("bias_ih", rows), ("bias_hh", len(rows) + rows)),
    }
    for place, named in parts.items():
        if place in floats:
            for direction in range(len(graph.initializers[floats[place]])):
                for name, index in named:
                    role = f"{name}_l{layer}{'_reverse' if direction else ''}"
                    yield Weight(f"{path}.{role}", floats[place], path, role, (direction, index))
