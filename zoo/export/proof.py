"""A graph in ONNX Runtime and the framework's model: outputs, their difference, the first layer that differs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from zoo.data import extras
from zoo.data.errors import UserError
from zoo.export import assembly
from zoo.run.trained import Trained
from zoo.tasks import classify
from zoo.trainer import load_backend
from zoo.trainer.pixels import normalize
from zoo.trainer.protocol import Trainer

RAW = classify.Scores()  # the model's output as it is, of a segmentation model the logits of every pixel
Forward = Callable[[np.ndarray], np.ndarray]
LIMIT = 1e-4  # of the relative difference in fp32
DEFINITION = "largest |graph - framework| / largest |framework|"


def load_trainer(source: Trained) -> Trainer:
    """Build the model as an evaluation in fp32 does, and load the weights."""
    return source.build(RAW, tf32=False)[0]


def forward(trainer: Trainer, source: Trained, pixels: np.ndarray) -> np.ndarray:
    """Return the model's output for pixels, uint8 (N, ..., 3): logits, of every pixel if it has them, or embeddings."""
    with _reporting(source, pixels):
        return trainer.predict(trainer.to_device({source.fields[0].name: pixels})).astype(np.float32)


def forward_frame(trainer: Trainer, source: Trained, frame: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
    """Return the output of a causal model for the next frame, uint8 (N, H, W, 3), and the new state."""
    with _reporting(source, frame):
        output, state = trainer.predict_frame(trainer.to_device({source.fields[0].name: frame[:, None]}), state)
        return np.asarray(output, np.float32), state


@contextmanager
def _reporting(source: Trained, pixels: np.ndarray) -> Iterator[None]:
    """Report a failure of the framework as an error with the size of the batch."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        shape = " x ".join(map(str, pixels.shape))
        raise UserError(
            f"{source.cfg.framework} cannot compute the model for a batch of {shape}: {error}. Nothing is written"
        ) from error


class Row(NamedTuple):
    """One comparison: what was compared, the shape of the batch, and the relative difference."""

    title: str
    shape: tuple[int, ...]
    difference: float


def start(content: bytes) -> Any:
    """Load a graph in ONNX Runtime."""
    with extras.named():
        import onnxruntime
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def runner(source: Trained, session: Any, with_preprocessing: bool) -> Forward:
    """Return the function that computes the graph's output for pixels, uint8 (N, ..., 3)."""

    def run(pixels: np.ndarray) -> np.ndarray:
        inputs = np.ascontiguousarray(pixels) if with_preprocessing else normalize(pixels, source.fields[0])
        return session.run(None, {assembly.INPUT: inputs})[0]

    return run


def difference(found: np.ndarray, expected: np.ndarray, kind: str) -> float:
    """Return how far the graph's output is from the framework's, relative to the largest.

    Of a class map, it is the distance of the logits of the graph's classes from the largest of each pixel.
    """
    if kind != "class_map":
        return relative(found, finish(expected, kind))
    if found.shape != (expected.shape[0], *expected.shape[2:]) or found.max() >= expected.shape[1]:
        return float("inf")
    chosen = np.take_along_axis(expected, found[:, None].astype(np.int64), 1)[:, 0]
    return float((expected.max(1) - chosen).max() / np.abs(expected).max())


def finish(output: np.ndarray, kind: str) -> np.ndarray:
    """Make of logits or embeddings what a graph of this kind gives."""
    if kind == "probabilities":
        powers = np.exp(output - output.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if kind == "class_probabilities":
        return 1 / (1 + np.exp(-output))
    if kind == "unit_embedding":
        return output / np.linalg.norm(output, axis=1, keepdims=True)
    return output


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference relative to the largest number, infinity for other shapes or NaN."""
    if found.shape != expected.shape:
        return float("inf")
    distance, scale = np.abs(found - expected).max(), np.abs(expected).max()
    return float(distance / scale) if np.isfinite(distance) and scale > 0 else float("inf")


def largest(rows: Sequence[Row]) -> float:
    return max(row.difference for row in rows)


def find_cause(source: Trained, trainer: Trainer, pixels: np.ndarray, with_preprocessing: bool) -> str:
    """Name the first layer whose output differs, and the operators to look at.

    Args:
        pixels: the batch that is computed again, uint8 (N, ..., 3).
        with_preprocessing: whether the graph that differs has it; the layers are those of a graph without it.
    """
    model = assembly.build(source, pixels.shape[1:], False)
    batch = trainer.to_device({source.fields[0].name: pixels})
    kept: dict[str, np.ndarray] = {}
    record = load_backend(source.cfg.framework).record_forward(trainer, batch, False, "", kept.__setitem__)
    producers = {node.output[0]: node for node in model.graph.node}
    layers = {call.name: call for call in record.calls if call.name in producers and call.outputs == 1}
    values = _values(source, model, layers, pixels)
    place = f"zoo/models/{source.model}/onnx.py"
    for name, call in layers.items():
        node = producers[name]
        if _differs(values.get(node.input[0]), kept[f"{call.key}/in0"]):
            before = _between(node.input[0], producers, layers)
            return f"the input of {name} differs first; look at {before} before it in {place}"
        if _differs(values[name], kept[f"{call.key}/out0"]):
            return f"the output of {name} differs first; look at {node.op_type} in {place}"
    if with_preprocessing:
        return "all layers of the model agree; look at what --with-preprocessing adds in front of and behind it"
    after = _between(model.graph.output[0].name, producers, layers)
    return f"all layers agree; look at {after} behind the last one in {place}"


def _values(source: Trained, model: Any, layers: dict[str, Any], pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs and outputs of layers of the graph."""
    types = {value.name: value for value in model.graph.value_info}
    inputs = {node.input[0] for node in model.graph.node if node.output[0] in layers}
    names = [name for name in types if name in layers or name in inputs]
    model.graph.output.extend(types[name] for name in names)
    session = start(model.SerializeToString())
    x = normalize(pixels, source.fields[0])
    return dict(zip(names, session.run(names, {assembly.INPUT: x})))


def _differs(found: np.ndarray | None, expected: np.ndarray) -> bool:
    """Return whether values differ; a framework may have further axes of size 1. None: the graph's input."""
    return found is not None and relative(found.reshape(-1), expected.reshape(-1)) > LIMIT


def _between(value: str, producers: dict[str, Any], layers: dict[str, Any]) -> str:
    """Return the operators between the layers in front of a value and the value, the last one first."""
    left, operators = [value], []
    while left:
        value = left.pop()
        if value in producers and value not in layers:
            operators.append(producers[value].op_type)
            left += producers[value].input
    return ", ".join(dict.fromkeys(operators))
