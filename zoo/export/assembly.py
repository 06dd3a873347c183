"""The graph of a checkpoint, and its metadata."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from zoo.config import loader
from zoo.data.batch import Field
from zoo.data.convert import plain
from zoo.data.errors import UserError
from zoo.data.formats import masks
from zoo.models import load_graph
from zoo.run.recorded_recipe import read_recipe
from zoo.run.trained import Trained
from zoo.trainer.pixels import channels_first, scale_and_offset
from zoo.weights import files
from zoo.weights.onnx_file import KINDS, Input, OnnxMetadata, Output, Weights

INPUT, OUTPUT = "input", "output"
ANY_SIZE = ("height", "width")  # names of sizes that the input decides
PREPROCESSING, POSTPROCESSING = "preprocessing", "postprocessing"  # scopes of what is in fp32 in every precision
# Settings of data sets that decide what an evaluation makes of a file.
DATA_KEYS = (
    *("size", "eval_size", "short_side", "eval_crop", "eval_crops", "eval_sampling", "segments", "first_frame"),
    *("frame_template", "antialias", "base_size", "eval_scales", "resize", "levels"),
)
SMALLEST_NORM = 1e-12  # an embedding of zeros stays zero


def output_kind(source: Trained, with_preprocessing: bool) -> str:
    """Return what the graph gives; see zoo.weights.onnx_file.Output."""
    return KINDS[source.cfg.task.task][with_preprocessing]


def build(
    source: Trained, shape: Sequence[int], with_preprocessing: bool, kind: str | None = None, folded: bool = False
) -> Any:
    """Build the graph of a checkpoint.

    Args:
        shape: of a sample, channels last; a segmentation model takes other heights and widths, too.
        with_preprocessing: take uint8 pixels, channels last.
        kind: of the output; None for what a program makes of it with preprocessing, and for the model's own without.

    Returns:
        The onnx.ModelProto, checked.
    """
    add_model = load_graph(source.model).build
    from zoo.models.onnx_graph import FoldedGraph, Graph  # import onnx, whose absence load_graph reports

    graph = (FoldedGraph if folded else Graph)(source.tensors)
    y = add_model(graph, source.arch, add_input(graph, source, shape, with_preprocessing))
    kind = kind or output_kind(source, with_preprocessing)
    y = finish(graph.scope(POSTPROCESSING), y, kind)
    classes = (graph.size(y, 1),) if kind != "class_map" else ()
    graph.output(OUTPUT, y, ("batch", *classes, *(ANY_SIZE if source.spec.TASK == "segment" else ())))
    return graph.model(source.model, {})


def add_input(graph: Any, source: Trained, shape: Sequence[int], with_preprocessing: bool) -> str:
    """Add the input, and return the pixels as the model takes them; see `build`."""
    *frames, height, width, channels = shape
    sizes = ANY_SIZE if source.spec.TASK == "segment" else (height, width)
    if not with_preprocessing:
        return graph.input(INPUT, ("batch", *frames, channels, *sizes))
    pixels = graph.input(INPUT, ("batch", *frames, *sizes, channels), np.uint8)
    return normalize(graph.scope(PREPROCESSING), pixels, source.fields[0])


def normalize(graph: Any, pixels: str, field: Field) -> str:
    """Add (pixel / 255 - mean) / std, and put the channels first."""
    constants = scale_and_offset(field)
    assert constants is not None, "the model's input are pixels"
    scale, offset = (array.reshape(3, 1, 1) for array in constants)
    x = graph.transpose(pixels, *channels_first(len(graph.shape(pixels))))
    x = graph.node("Mul", graph.cast(x, np.float32), graph.constant(scale))
    return graph.add(x, graph.constant(offset))


def finish(graph: Any, y: str, kind: str) -> str:
    """Add what a program does with the model's output."""
    if kind == "probabilities":
        return graph.softmax(y, 1)
    if kind == "class_probabilities":
        return graph.node("Sigmoid", y)
    if kind == "class_map":
        return graph.cast(graph.node("ArgMax", y, axis=1, keepdims=0), np.uint8)
    if kind == "unit_embedding":
        norm = graph.node("ReduceL2", y, graph.integers(1), keepdims=1)
        return graph.node("Div", y, graph.node("Max", norm, graph.constant(np.float32(SMALLEST_NORM))))
    return y


def describe(source: Trained, shape: Sequence[int], with_preprocessing: bool, **facts: Any) -> OnnxMetadata:
    """Return the metadata of a graph.

    Args:
        facts: the protocol, precision, opset, max_difference and, of a streaming graph, the states.
    """
    field, settings = source.fields[0], source.cfg.data
    classes = [] if source.spec.SHARDED_PARAMETERS else list(source.record["classes"])
    axes = "T" * (len(shape) - 3) + ("HWC" if with_preprocessing else "CHW")
    recorded = read_recipe(source.path)[1]
    of_the_run: loader.Entries = {key: recorded[key] for key in ("framework", "device") if key in recorded}
    recipe = loader.render({**source.resolved, **of_the_run})
    limits = {"thresholds": source.thresholds} if source.thresholds else {}
    colors = masks.class_colors(source.class_names).tolist() if source.spec.TASK == "segment" else []
    try:
        values: dict[str, Any] = dict(
            record={"recipe": recipe, "classes": classes, "step": source.record["step"], **limits},
            model=source.model,
            task=source.cfg.task.task,
            arch={key: plain(value) for key, value in asdict(source.arch).items()},
            classes=source.class_names,
            palette=tuple(map(tuple, colors)),
            weights=Weights(source.path, files.sha256(source.file)),
            framework=source.cfg.framework,
            input=Input.parse(
                dict(
                    name=INPUT,
                    layout=f"N{axes}",
                    dtype="uint8" if with_preprocessing else "float32",
                    mean=field.mean,
                    std=field.std,
                    normalized=not with_preprocessing,
                )
            ),
            output=Output(OUTPUT, output_kind(source, with_preprocessing)),
            preprocessing={key: plain(getattr(settings, key)) for key in DATA_KEYS if hasattr(settings, key)},
        )
        return OnnxMetadata(**values, **facts)
    except ValueError as error:
        raise UserError(f"{source.path} cannot be exported: {error}") from None


def attach(model: Any, metadata: OnnxMetadata) -> None:
    for name, value in metadata.to_properties().items():
        model.metadata_props.add(key=name, value=value)


def outside(model: Any) -> list[str]:
    """Return the names of the nodes that stay in fp32."""
    scopes = (f"{PREPROCESSING}.", f"{POSTPROCESSING}.")
    return [node.name for node in model.graph.node if node.name.startswith(scopes)]
