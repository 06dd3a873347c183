"""Nodes, weights and the checked model of an ONNX graph in construction; onnx_graph.py adds the layers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from zoo.data.errors import UserError

OPSET, IR_VERSION = 18, 8  # of early 2023: every runtime of today reads them


class Parts(NamedTuple):
    """Parts of a graph so far, shared by its scopes."""

    tensors: Mapping[str, np.ndarray]
    nodes: list[onnx.NodeProto]
    initializers: dict[str, TensorProto]
    constants: dict[tuple[Any, ...], str]  # (type, shape, bytes) -> name
    inputs: list[onnx.ValueInfoProto]
    outputs: list[onnx.ValueInfoProto]
    types: dict[str, onnx.TypeProto]  # of every value
    counts: Counter[str]  # of operators, for their names


class Nodes:
    """A graph in construction, or a scope of it: the part whose layers have a prefix."""

    def __init__(self, tensors: Mapping[str, np.ndarray], parts: Parts | None = None, prefix: str = ""):
        """Begin an empty graph. tensors: float32, by canonical name and in canonical layout."""
        self.parts = parts or Parts(tensors, [], {}, {}, [], [], {}, Counter())
        self.prefix = prefix

    def scope(self, name: str) -> Self:
        return type(self)(self.parts.tensors, self.parts, f"{self.prefix}{name}.")

    def has(self, name: str) -> bool:
        """Return whether there is a tensor, such as the bias of a convolution."""
        return self.prefix + name in self.parts.tensors

    def shape(self, x: str) -> tuple[int | None, ...]:
        """Return the sizes of a value, None where they depend on the input."""
        sizes = self.parts.types[x].tensor_type.shape.dim
        return tuple(size.dim_value if size.HasField("dim_value") else None for size in sizes)

    def size(self, x: str, axis: int) -> int:
        """Return a size of a value that does not depend on the input."""
        size = self.shape(x)[axis]
        if size is None:
            raise ValueError(f"{x}: the size of axis {axis} depends on the input")
        return size

    def input(self, name: str, shape: Sequence[int | str], dtype: type[np.generic] = np.float32) -> str:
        """Add an input; sizes that are not fixed have names."""
        value = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        self.parts.inputs.append(value)
        self.parts.types[name] = value.type
        return name

    def output(self, name: str, x: str, shape: Sequence[int | str]) -> str:
        """Make a value an output of the graph; sizes that are not fixed have names."""
        self.node("Identity", x, name=name)
        dtype = self.parts.types[name].tensor_type.elem_type
        self.parts.outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, shape: Sequence[int] | None = None) -> str:
        """Return a tensor of the model, perhaps in another shape."""
        name = self.prefix + name
        if name not in self.parts.initializers:
            array = np.asarray(self.parts.tensors[name], np.float32)
            self.initializer(name, array if shape is None else array.reshape(shape))
        return name

    def constant(self, array: np.ndarray | np.float32) -> str:
        """Return a constant; equal ones are stored once."""
        array = np.asarray(array)
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self.parts.constants:
            name = f"constant_{len(self.parts.constants)}"
            self.parts.constants[key] = self.initializer(name, array)
        return self.parts.constants[key]

    def integers(self, *values: int) -> str:
        """Return a constant int64 (number of values,)."""
        return self.constant(np.array(values, np.int64))

    def initializer(self, name: str, array: np.ndarray) -> str:
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        self.parts.initializers[name] = tensor
        self.parts.types[name] = helper.make_tensor_type_proto(tensor.data_type, array.shape)
        return name

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add an operator with one output, and return that.

        Args:
            name: of the layer within this scope; the operator and a number if there is none.
        """
        parts = self.parts
        if not name:
            name = f"{operator.lower()}_{parts.counts[operator]}"
            parts.counts[operator] += 1
        name = self.prefix + name
        node = helper.make_node(operator, list(inputs), [name], name=name, **attributes)
        parts.nodes.append(node)
        with _reporting(f"{operator} {name}"):
            types = onnx.shape_inference.infer_node_outputs(
                onnx.defs.get_schema(operator, OPSET),
                node,
                {value: parts.types[value] for value in inputs if value},
                {value: parts.initializers[value] for value in inputs if value in parts.initializers},
                opset_imports=[helper.make_opsetid("", OPSET)],
                ir_version=IR_VERSION,
            )
        parts.types[name] = types[name]
        return name

    def model(self, name: str, properties: Mapping[str, str]) -> onnx.ModelProto:
        """Return the whole graph as a model, checked, with the shape of every value that is known."""
        parts = self.parts
        outputs = {value.name for value in parts.outputs}
        values = [helper.make_value_info(node.name, parts.types[node.name]) for node in parts.nodes]
        graph = helper.make_graph(
            parts.nodes,
            name,
            parts.inputs,
            parts.outputs,
            list(parts.initializers.values()),
            value_info=[value for value in values if value.name not in outputs],
        )
        model = helper.make_model(
            graph,
            producer_name="vision-zoo",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(properties))
        with _reporting(f"the graph of {name}"):
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
            onnx.checker.check_model(model, full_check=True)
        return model


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Report what ONNX refuses as an error of the function that describes the graph."""
    try:
        yield
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UserError(
            f"{what}: no valid ONNX ({str(error).strip()}); look at zoo/models/<model>/onnx.py. Nothing is written"
        ) from error
