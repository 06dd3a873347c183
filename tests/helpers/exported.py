"""Exported models as tools/export.py writes them, without its comparison with a framework."""

import json
from dataclasses import asdict, replace

import numpy as np
from onnx import TensorProto

from zoo.models import load_graph_builder, load_spec
from zoo.models.onnx_graph import Graph
from zoo.models.onnx_nodes import OPSET
from zoo.predict.predictors import find_predictor
from zoo.run import trained
from zoo.run.checkpoint import load_record
from zoo.weights.onnx_metadata import Input, OnnxMetadata, Output, Weights

KINDS = {"classify": "logits", "segment": "logits", "face": "embedding"}
LAYOUTS = {("float32", 3): "NCHW", ("float32", 4): "NTCHW", ("uint8", 3): "NHWC", ("uint8", 4): "NTHWC"}


def export(checkpoint, path, whole=False, change=lambda metadata: metadata):
    """Write an exported model; return its path.

    Args:
        checkpoint: its folder.
        path: of the file.
        whole: whether it takes pixels as they are, and gives what a program wants.
        change: of its metadata, for a file that is not what it says.
    """
    record, cfg, resolved = trained.read_checkpoint(str(checkpoint), "torch", "cpu", ())
    name = resolved["model.name"].value
    spec = load_spec(name)
    field = find_predictor(spec.TASK, resolved["data.name"].value).fields(cfg.data)[0]
    arch = trained.resolve(spec, cfg.model, (field,), len(record["classes"]))
    tensors = trained.read_tensors(str(checkpoint), spec)
    dtype = "uint8" if whole else "float32"
    graph = Graph({key: array for key, array in tensors.items() if key not in spec.SHARDED_PARAMETERS})
    sizes = ("height", "width") if spec.TASK == "segment" else field.shape[-3:-1]
    shape = ("batch", *field.shape[:-3], *((*sizes, 3) if whole else (3, *sizes)))
    x = graph.input("input", shape, TensorProto.UINT8 if whole else TensorProto.FLOAT)
    y = load_graph_builder(name)(graph, arch, normalized(graph, x, field) if whole else x)
    kind = KINDS[spec.TASK]
    if whole:
        kind, y = completed(graph, spec.TASK, y)
    graph.output("output", y, ["batch", *(f"size_{axis}" for axis in range(1, len(graph.shape(y))))])
    metadata = OnnxMetadata(
        record=load_record(str(checkpoint)),
        model=name,
        task=spec.TASK,
        arch=json.loads(json.dumps(asdict(arch))),
        protocol="none",
        classes=record["classes"],
        palette=(),
        weights=Weights(str(checkpoint), "0" * 64),
        framework="torch",
        precision="fp32",
        opset=OPSET,
        max_difference=0.0,
        input=Input("input", LAYOUTS[dtype, len(field.shape)], dtype, field.mean, field.std, not whole),
        output=Output("output", kind),
        preprocessing={},
    )
    model = graph.model("model", change(metadata).to_properties())
    path.write_bytes(model.SerializeToString())
    return str(path)


def normalized(graph, pixels, field):
    """Add the normalization of pixels (N, ..., 3), and put the channels first."""
    x = graph.node("Cast", pixels, to=TensorProto.FLOAT)
    std = np.array(field.std)
    x = graph.node("Mul", x, graph.constant((1 / (255 * std)).astype(np.float32)))
    x = graph.add(x, graph.constant((-np.array(field.mean) / std).astype(np.float32)))
    last = len(graph.shape(x)) - 1
    return graph.transpose(x, *range(last - 2), last, last - 2, last - 1)


def completed(graph, task, y):
    """Add what a program wants instead of the model's own output; return its kind, too."""
    if task == "classify":
        return "probabilities", graph.softmax(y, 1)
    if task == "segment":
        labels = graph.node("ArgMax", y, axis=1, keepdims=0)
        return "class_map", graph.node("Cast", labels, to=TensorProto.UINT8)
    return "unit_embedding", graph.node("LpNormalization", y, axis=1, p=2)


def with_input(metadata, **changes):
    """Return metadata that describe another input."""
    return replace(metadata, input=replace(metadata.input, **changes))
