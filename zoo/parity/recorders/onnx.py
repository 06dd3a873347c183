"""ONNX Runtime's side of a comparison: an .onnx file, of which each node runs by itself, without optimizations.

A file that is compiled runs as a whole, as it is deployed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from zoo.data.errors import UserError
from zoo.parity.outline import Tensor
from zoo.parity.probe import Probe
from zoo.parity.recorders import onnx_graph
from zoo.parity.recorders.common import Model as Base
from zoo.parity.recorders.common import Objective, Pass
from zoo.parity.recorders.onnx_graph import Call, Node
from zoo.parity.recording import Entry

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "gpu": "CUDAExecutionProvider"}
HAS_GRADIENTS = False


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions that are compared: that of the file."""
    return ("fp32",)


class Model(Base):
    """A file.

    Args:
        source: its path.
    """

    def __init__(self, source: str, precision: str, device: str, is_compiled: bool):
        if precision != "fp32":
            raise UserError(f"{precision}: an ONNX file has the precision that it was written in; leave it out")
        self.graph, self.is_compiled = onnx_graph.read(source), is_compiled
        self.weights = {weight.name: weight for weight in onnx_graph.weights_of(self.graph)}
        # An object per module, of a class of its kind's name, which is not of this file
        self.layers = {name: type(kind, (), {"__module__": "onnx"})() for name, kind in self.graph.kinds.items()}
        self.provider = PROVIDERS.get(device, device)
        self.sessions: dict[Any, onnxruntime.InferenceSession] = {}

    def tensors(self) -> list[Tensor]:
        found = ((weight, weight.get(self.graph.initializers).shape) for weight in self.weights.values())
        kinds = self.graph.kinds
        return [
            Tensor(w.name, shape, w.module, kinds.get(w.module, ""), w.role, "running" not in w.role)
            for w, shape in found
        ]

    def named(self) -> Mapping[str, np.ndarray]:
        return {name: weight.get(self.graph.initializers) for name, weight in self.weights.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.weights[name].set(self.graph.initializers, array)

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint."""
        return {name: np.array(array) for name, array in self.named().items()}

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Compute the outputs."""
        values = {**self.graph.initializers, **self.inputs(inputs)}
        self._call(self.graph.call, values, probe)
        return Pass([self.array_of(values[name]) for name in self.graph.call.outputs], None, {})

    def _call(self, call: Call, values: dict[str, np.ndarray], probe: Probe | None) -> None:
        """Compute the nodes of a module; what replaces its inputs does so for them alone."""
        before = {name: values[name] for name in call.inputs}
        if probe is not None:
            names = floats_first(call.inputs, values)
            entry = probe.enter(call.name, self.layers[call.name], [self.array_of(values[name]) for name in names])
            replace(values, names, entry)
        if self.is_compiled:
            values |= self._run_whole(values)
        else:
            self._run_nodes(call, values, probe)
        values |= before
        if probe is not None:
            names = floats_first(call.outputs, values)
            replace(values, names, probe.leave([self.array_of(values[name]) for name in names]))

    def _run_nodes(self, call: Call, values: dict[str, np.ndarray], probe: Probe | None) -> None:
        position, inner = call.start, {each.start: each for each in call.calls}
        while position < call.end:
            if position in inner:
                self._call(inner[position], values, probe)
                position = inner[position].end
            else:
                self._run_node(position, self.graph.nodes[position], values)
                position += 1

    def _run_node(self, number: int, node: Node, values: dict[str, np.ndarray]) -> None:
        given = {name: values[name] for name in node.inputs}
        types = [type_of(name, value) for name, value in given.items()]
        key = number, *(each.SerializeToString() for each in types)
        if key not in self.sessions:
            results = [onnx.ValueInfoProto(name=name) for name in node.outputs]
            graph = helper.make_graph([node.proto], "node", types, results)
            whole = self.graph.proto
            model = helper.make_model(graph, opset_imports=whole.opset_import, functions=whole.functions)
            model.ir_version = whole.ir_version
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = 1  # of each of many
            self.sessions[key] = self._session(model, options)
        values |= zip(node.outputs, self.sessions[key].run(list(node.outputs), given))

    def _run_whole(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        model = onnx.ModelProto()
        model.CopyFrom(self.graph.proto)
        for each in model.graph.initializer:
            each.CopyFrom(numpy_helper.from_array(self.graph.initializers[each.name], each.name))
        session = self._session(model, onnxruntime.SessionOptions())
        outputs = list(self.graph.call.outputs)
        return dict(zip(outputs, session.run(outputs, {name: values[name] for name in self.graph.inputs})))

    def _session(self, model: onnx.ModelProto, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        options.log_severity_level = 3  # errors
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[self.provider])

    def inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the inputs by the file's names, in its types."""
        own = self.graph.inputs
        named = inputs if inputs.keys() == own.keys() else dict(zip(own, inputs.values()))
        if len(inputs) != len(own):
            raise UserError(f"ONNX: the file has the inputs {', '.join(own)}; given are {', '.join(inputs)}")
        types = {name: helper.tensor_dtype_to_np_dtype(kind) for name, kind in own.items()}
        return {name: np.asarray(array, types[name]) for name, array in named.items()}


def type_of(name: str, value: np.ndarray | list[np.ndarray]) -> onnx.ValueInfoProto:
    """Return the type of an array of any size, or of a sequence of such arrays."""
    array = value[0] if isinstance(value, list) else value
    make = helper.make_tensor_sequence_value_info if isinstance(value, list) else helper.make_tensor_value_info
    return make(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)


def floats_first(names: Sequence[str], values: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names of arrays, numbers of shapes last: other frameworks pass neither these on, nor sequences."""
    arrays = [name for name in names if not isinstance(values[name], list)]
    return sorted(arrays, key=lambda name: values[name].dtype.kind != "f")


def replace(values: dict[str, np.ndarray], names: Sequence[str], entry: Entry) -> None:
    for name, value in zip(names, entry.values):
        if value is not None:
            values[name] = np.asarray(value, values[name].dtype)
