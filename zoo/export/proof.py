"""Runs of graphs in ONNX Runtime, and their difference from the framework's output."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.export import assembly
from zoo.export.source import Source
from zoo.trainer import preprocessing

Forward = Callable[[np.ndarray], np.ndarray]
LIMIT = 1e-4  # of the relative difference in fp32
DEFINITION = "largest |graph - framework| / largest |framework|"


class Row(NamedTuple):
    """One comparison: what was compared, the shape of the batch, and the relative difference."""

    title: str
    shape: tuple[int, ...]
    difference: float


def start(content: bytes) -> Any:
    """Load a graph in ONNX Runtime.

    Raises:
        UserError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise UserError("onnxruntime is not installed here: pip install 'vision-zoo[export]'") from None
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def runner(source: Source, session: Any, with_preprocessing: bool) -> Forward:
    """Return the function that computes the graph's output for pixels, uint8 (N, ..., 3)."""

    def run(pixels: np.ndarray) -> np.ndarray:
        inputs = np.ascontiguousarray(pixels if with_preprocessing else normalize(source, pixels))
        return session.run(None, {assembly.INPUT: inputs})[0]

    return run


def normalize(source: Source, pixels: np.ndarray) -> np.ndarray:
    """Return the input of a graph that takes normalized pixels: float32, channels first."""
    constants = preprocessing.scale_and_offset(source.fields[0])
    assert constants is not None, "the model's input are pixels"
    scale, offset = constants
    normalized = pixels.astype(np.float32) * scale + offset
    return normalized.transpose(preprocessing.channels_first(pixels.ndim))


def difference(found: np.ndarray, expected: np.ndarray, kind: str) -> float:
    """Return how far the graph's output is from the framework's, relative to the largest.

    Of a class map, it is the distance of the logits of the graph's classes from the largest of each pixel.

    Args:
        found: output of the graph.
        expected: logits or embeddings of the framework.
        kind: of the graph's output.
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
    """Return the largest difference of all."""
    return max(row.difference for row in rows)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"{'batch':<28} {'difference':>10}"]
    for row in rows:
        shape = " x ".join(map(str, row.shape))
        lines.append(f"{shape:<28} {row.difference:>10.1e}  {row.title}".rstrip())
    return lines
