"""Search for the first layer of a graph that differs from the framework's module of the same name."""

from typing import Any

import numpy as np

from zoo.export import assembly, proof
from zoo.export.source import Source
from zoo.trainer import load_backend
from zoo.trainer.protocol import Trainer

HINTS = {  # operator -> what to look at
    "Pad": "the temporal shift: model.shift_place, model.shift_div and model.shift_direction",
    "Resize": "the resize: model.align_corners",
    "MaxPool": "the pooling: model.padding, model.temporal_pool",
    "AveragePool": "the pooling of the shortcuts: model.variant",
    "BatchNormalization": "the batch normalization: its epsilon, and that both are in evaluation mode",
    "Conv": "the convolution: stride, padding, dilation and groups",
    "PRelu": "the slopes of the PReLU: model.variant",
}


def find(source: Source, trainer: Trainer, pixels: np.ndarray, with_preprocessing: bool) -> str:
    """Name the first layer whose output differs, and what to look at.

    Args:
        source: the checkpoint.
        trainer: its model in the framework.
        pixels: the batch that is computed again, uint8 (N, ..., 3).
        with_preprocessing: whether the graph that differs has it; the layers are those of a graph without it.
    """
    model = assembly.build(source, pixels.shape[1:], False)
    batch = trainer.to_device({source.fields[0].name: pixels})
    record = load_backend(source.cfg.framework).record_forward(trainer, batch, False, lambda array: array)
    producers = {node.output[0]: node for node in model.graph.node}
    layers = {call.name: call for call in record.calls if call.name in producers and len(call.outputs) == 1}
    values = _values(source, model, layers, pixels)
    for name, call in layers.items():
        node = producers[name]
        if _differs(values.get(node.input[0]), call.inputs[0]):
            is_shift = _is_shift(source, values[node.input[0]], call.inputs[0])
            hint = HINTS["Pad"] if is_shift else _between(node.input[0], producers, layers)
            return f"the input of {name} differs first; look at {hint}"
        if _differs(values[name], call.outputs[0]):
            hint = HINTS.get(node.op_type, f"the operator {node.op_type}")
            return f"the output of {name} differs first; look at {hint}"
    if with_preprocessing:
        return "all layers of the model agree; look at what --with-preprocessing adds in front of and behind it"
    output = model.graph.output[0].name
    return f"all layers agree; look at {_between(output, producers, layers)} behind the last one"


def _values(source: Source, model: Any, layers: dict[str, Any], pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs and outputs of layers of the graph."""
    extended = type(model)()
    extended.CopyFrom(model)
    types = {value.name: value for value in model.graph.value_info}
    inputs = {node.input[0] for node in model.graph.node if node.output[0] in layers}
    names = [name for name in types if name in layers or name in inputs]
    extended.graph.output.extend(types[name] for name in names)
    session = proof.start(extended.SerializeToString())
    x = np.ascontiguousarray(proof.normalize(source, pixels))
    return dict(zip(names, session.run(names, {model.graph.input[0].name: x})))


def _differs(found: np.ndarray | None, expected: np.ndarray) -> bool:
    """Return whether values differ; a framework may have further axes of size 1. None: the graph's input."""
    return found is not None and proof.relative(found.reshape(-1), expected.reshape(-1)) > proof.LIMIT


def _is_shift(source: Source, found: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether values (N, C, ...) differ in the channels alone that a temporal shift moves."""
    if not hasattr(source.arch, "shift_div") or found.size != expected.size:
        return False
    moved = 2 * (found.shape[1] // source.arch.shift_div)
    return moved < found.shape[1] and not _differs(found[:, moved:], expected.reshape(found.shape)[:, moved:])


def _between(value: str, producers: dict[str, Any], layers: dict[str, Any]) -> str:
    """Return what to look at between the layers in front of a value and the value."""
    left, operators = [value], []
    while left:
        value = left.pop()
        if value in producers and value not in layers:
            operators.append(producers[value].op_type)
            left += producers[value].input
    named = [HINTS[operator] for operator in HINTS if operator in operators]
    return named[0] if named else f"the operators {', '.join(dict.fromkeys(operators))}"
