"""Record of what one framework computed: small excerpts of every tensor of a proof, in one safetensors file."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import parsing
from zoo.weights import files

MAX_ELEMENTS = 1 << 14  # of an excerpt
CHANNELS = "#channels"  # suffix of the statistics of a tensor's channels
ROUNDING_UNITS = {"fp64": 2.0**-52, "fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
VERSION = 3  # of the file's layout
CLIPPED = "clipped update"  # titles of additional updates, from the initial weights
ACCUMULATED = "update of two micro-batches"


Identity = tuple[str, int]  # of a call: module, and how many times it was called before


class Call(NamedTuple):
    """One call of a module in a forward pass.

    Attributes:
        key: prefix of the keys of its tensors, <key>/in0 and so on.
        name: attribute path of the module, "" for the model itself.
        occurrence: how many times the module was called before in this pass.
        files: source files of the module: that of its own class, if it is not the framework's, and that of the nearest
            enclosing class, which creates it.
        call_sites: files and lines of the call, the innermost first: one for each source file on the way to it.
        inputs, outputs: how many tensors.
        span: positions at which it was entered and left.
    """

    key: str
    name: str
    occurrence: int
    kind: str
    files: tuple[str, ...]
    call_sites: tuple[str, ...]
    inputs: int
    outputs: int
    span: tuple[int, int]

    @property
    def identity(self) -> Identity:
        return self.name, self.occurrence


class Record(NamedTuple):
    """Result of a proof in one framework and precision.

    Attributes:
        precision: fp64, fp32, fp16 or bf16.
        excerpts: excerpt and channel statistics of the tensors, by key.
        shapes: shape of the whole tensor, by key.
        passes: calls of each forward pass, by name of the pass, in order.
        steps: of each update: learning rate, loss, gradient norm, deviations of the optimizer and of moving averages.
        files: source files by topic: preprocess, objective, optimizer, statistics, output, trainer.
        settings: what the recipe says on the update and the loss, for the search of causes.
    """

    framework: str
    precision: str
    excerpts: dict[str, np.ndarray]
    shapes: dict[str, tuple[int, ...]]
    passes: dict[str, list[Call]]
    steps: list[dict[str, Any]]
    files: dict[str, list[str]]
    settings: dict[str, Any]

    def add(self, key: str, tensor: np.ndarray) -> None:
        """Add an excerpt of a tensor (N, C, ...), and what is kept of its channels."""
        values = np.asarray(tensor, np.float64, order="C")  # sums depend on the order in memory
        self.shapes[key] = values.shape
        part = self.excerpts[key] = excerpt(values).copy()  # a view would keep the whole tensor
        if values.ndim > 1 and part.size < values.size:
            axes = tuple(axis for axis in range(values.ndim) if axis != 1)
            self.excerpts[key + CHANNELS] = np.stack([values.mean(axes), np.sqrt(np.square(values).mean(axes))])

    def get(self, key: str) -> np.ndarray:
        return self.excerpts[key]

    def channels(self, key: str) -> np.ndarray | None:
        """Return mean and root mean square of the channels, (2, C); None if the excerpt is the whole tensor."""
        return self.excerpts.get(key + CHANNELS)

    def save(self, path: str) -> None:
        """Write a safetensors file. Raises UserError if it exists or cannot be written."""
        rest = {**self._asdict(), "excerpts": {}, "version": VERSION}
        files.write(path, self.excerpts, {"record": json.dumps(rest)})


def load(path: str) -> Record:
    excerpts, metadata = files.read(path)
    with parsing(f"{path} is not a record of zoo compare", "compare again"):
        rest = json.loads(metadata["record"])
        if (version := rest.pop("version")) != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        passes = {
            name: [
                Call(*call)._replace(files=tuple(call[4]), call_sites=tuple(call[5]), span=tuple(call[8]))
                for call in calls
            ]
            for name, calls in rest["passes"].items()
        }
        shapes = {key: tuple(shape) for key, shape in rest["shapes"].items()}
        return Record(**{**rest, "excerpts": excerpts, "shapes": shapes, "passes": passes})


def empty(framework: str, precision: str, settings: Mapping[str, Any]) -> Record:
    return Record(framework, precision, {}, {}, {}, [], {}, dict(settings))


def excerpt(values: np.ndarray) -> np.ndarray:
    """Return the first samples of a tensor, whole ones as long as at most MAX_ELEMENTS remain.

    Args:
        values: (N, C, ...); of a single sample that is too large, the first rows of its last axes but one are kept.
    """
    if values.size <= MAX_ELEMENTS:
        return values
    sample = math.prod(values.shape[1:])
    if sample <= MAX_ELEMENTS:
        return values[: MAX_ELEMENTS // sample]
    values = values[:1]
    for axis in range(values.ndim - 2, 0, -1):
        if values.size > MAX_ELEMENTS:
            keep = max(1, MAX_ELEMENTS * values.shape[axis] // values.size)
            values = values[(slice(None),) * axis + (slice(keep),)]
    return values[..., :MAX_ELEMENTS]
