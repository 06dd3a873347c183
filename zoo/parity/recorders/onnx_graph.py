"""An ONNX file as modules, the scopes that PyTorch's exporters name, else its nodes; and their weights as PyTorch's."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from zoo.data.errors import UserError
from zoo.parity.recorders.common import ROLES

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
KINDS = {"Gemm": "Linear", "MatMul": "Linear", "Gather": "Embedding", "BatchNormalization": "BatchNorm"}
FIXED = ("Constant", "Shape", "Size")  # whose outputs do not depend on the values of the inputs
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


class Node(NamedTuple):
    """A node of the graph.

    Attributes:
        scopes: modules that it lies in, the outermost first.
        inputs: names, with those that its subgraphs use.
        classes: of the scopes, "" where they are unknown.
    """

    proto: onnx.NodeProto
    scopes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    classes: tuple[str, ...]


class Call(NamedTuple):
    """Nodes that follow each other in one module, from the first up to the last, without it.

    Attributes:
        calls: of modules within.
    """

    name: str
    start: int
    end: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple["Call", ...]


class Graph(NamedTuple):
    """A graph.

    Attributes:
        initializers: weights and other constants by name.
        call: of the whole.
        kinds: class names of the modules.
    """

    proto: onnx.ModelProto
    nodes: list[Node]
    initializers: dict[str, np.ndarray]
    inputs: dict[str, int]
    call: Call
    kinds: dict[str, str]


def read(path: str) -> Graph:
    """Read a file, and tensors that lie beside it.

    Raises:
        UserError: it is no ONNX file.
    """
    try:
        proto = onnx.load(path)  # which refuses tensors outside of the file's folder
    except Exception as error:  # of protobuf, of ONNX, or of the file system
        raise UserError(f"{path}: cannot be read as an ONNX file: {error}") from None
    initializers = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    protos = []
    for each in proto.graph.node:
        if each.op_type == "Identity" and each.input[0] in initializers:  # equal tensors that the exporter keeps once
            initializers[each.output[0]] = initializers[each.input[0]].copy()
        else:
            protos.append(each)
    nodes, scopes, classes = list[Node](), tuple[str, ...](), tuple[str, ...]()
    is_scoped = proto.producer_name == "pytorch" and any(_scopes(each) is not None for each in protos)
    for number, each in enumerate(protos):
        if not is_scoped:
            name = each.name or f"{each.op_type}_{number}"
            scopes, classes = (name,), (KINDS.get(each.op_type, each.op_type),)
        elif (found := _scopes(each)) is not None:  # else it stays in the module of the node before it
            scopes, classes = found
        inputs = (*filter(None, each.input), *_captured(each))
        nodes.append(Node(each, scopes, tuple(dict.fromkeys(inputs)), tuple(filter(None, each.output)), classes))
    given = {v.name: v.type.tensor_type.elem_type for v in proto.graph.input if v.name not in initializers}
    fixed = _fixed(nodes, initializers)
    outputs = tuple(each.name for each in proto.graph.output)
    calls = tuple(_calls(nodes, 0, len(nodes), 0, fixed, outputs))
    whole = Call("", 0, len(nodes), tuple(given), outputs, calls)
    return Graph(proto, nodes, initializers, given, whole, _kinds(nodes, whole))


def _scopes(node: onnx.NodeProto) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the modules that a node of PyTorch's exporters lies in and their classes; None if it does not say so."""
    metadata = {each.key: each.value for each in node.metadata_props}
    if SCOPES in metadata:
        scopes = tuple(ast.literal_eval(metadata[SCOPES])[1:-1])
        classes = [name.rpartition(".")[2] for name in ast.literal_eval(metadata.get(CLASSES, "[]"))][1:-1]
        return scopes, tuple(classes) if len(classes) == len(scopes) else ("",) * len(scopes)
    if not node.name.startswith("/"):
        return None
    found: list[str] = []
    for word in node.name[1:].split("/")[:-1]:  # of a module in a list, the word has the list's name, too
        parent = found[-1] if found else ""
        is_whole = not parent or word.startswith(parent.rpartition(".")[2] + ".")
        around = parent.rpartition(".")[0] if is_whole else parent
        found.append(f"{around}.{word}" if around else word)
    return tuple(found), ("",) * len(found)


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node's subgraphs use and do not define."""
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
            own = {each.name for each in (*graph.input, *graph.initializer)}
            own |= {name for each in graph.node for name in each.output}
            used = [name for each in graph.node for name in (*each.input, *_captured(each))]
            yield from (name for name in (*used, *(each.name for each in graph.output)) if name and name not in own)


def _fixed(nodes: Iterable[Node], initializers: Iterable[str]) -> set[str]:
    """Return the names of tensors that do not depend on the values of the inputs."""
    fixed = set(initializers)
    for node in nodes:
        if node.proto.op_type in FIXED or fixed.issuperset(node.inputs):
            fixed.update(node.outputs)
    return fixed


def _calls(
    nodes: Sequence[Node], start: int, end: int, depth: int, fixed: set[str], results: Sequence[str]
) -> Iterator[Call]:
    """Yield the calls of modules at a depth among nodes."""
    position = start
    while position < end:
        first, scopes = position, nodes[position].scopes[: depth + 1]
        while position < end and nodes[position].scopes[: depth + 1] == scopes:
            position += 1
        if len(scopes) <= depth:
            continue
        inner = nodes[first:position]
        made = dict.fromkeys(name for node in inner for name in node.outputs)
        used = {name for node in nodes[position:] for name in node.inputs} | set(results)
        inputs = dict.fromkeys(name for node in inner for name in node.inputs if name not in made)
        outputs = tuple(name for name in made if name in used and name not in fixed)
        calls = tuple(_calls(nodes, first, position, depth + 1, fixed, results))
        if outputs:
            yield Call(scopes[-1], first, position, tuple(n for n in inputs if n not in fixed), outputs, calls)


def _kinds(nodes: Sequence[Node], call: Call) -> dict[str, str]:
    """Return the class of each module: that which the exporter wrote, or that of its only kind of node."""
    found = {"": "Graph"}
    for node in nodes:
        found |= {name: kind for name, kind in zip(node.scopes, node.classes) if kind}
    calls = list(call.calls)
    for each in calls:
        calls += each.calls
        operators = {node.proto.op_type for node in nodes[each.start : each.end]}
        known = [KINDS[name] for name in KINDS if name in operators] or sorted(operators)
        kind = known[0] if len(known) == 1 else each.name.rpartition(".")[2].rpartition("/")[2]
        found.setdefault(each.name, kind)
    return found


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)


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
