"""Record of what one framework computed: small excerpts of every tensor of a proof, in one safetensors file."""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from zoo.weights import files

MAX_ELEMENTS = 1 << 14  # of an excerpt
CHANNELS = "#channels"  # suffix of the statistics of a tensor's channels
VERSION = 1  # of the file's layout


class Call(NamedTuple):
    """One call of a module in a forward pass; see ModuleCall in zoo/trainer/recording.py.

    Attributes:
        key: prefix of the keys of its tensors, <key>/in0 and so on.
        occurrence: how many times the module was called before in this pass.
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


class Record(NamedTuple):
    """Result of a proof in one framework and precision.

    Attributes:
        framework: name of the framework.
        precision: fp64, fp32, fp16 or bf16.
        excerpts: excerpt and channel statistics of the tensors, by key; of equal ones only the first.
        aliases: key of the equal tensor that was added before, by key.
        shapes: shape of the whole tensor, by key.
        passes: calls of each forward pass, by name of the pass, in order.
        steps: of each update: learning rate, loss, gradient norm, and deviations of the optimizer.
        files: source files by topic: preprocess, objective, optimizer, statistics, output, trainer.
        settings: what the recipe says on the update and the loss, for the search of causes.
    """

    framework: str
    precision: str
    excerpts: dict[str, np.ndarray]
    aliases: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    passes: dict[str, list[Call]]
    steps: list[dict[str, Any]]
    files: dict[str, list[str]]
    settings: dict[str, Any]
    digests: dict[tuple[int, tuple[int, ...]], str]  # of the excerpts, to find equal ones

    def add(self, key: str, array: np.ndarray) -> None:
        """Add the excerpt of a tensor, and the mean and root mean square of its channels if it is not whole."""
        values = np.ascontiguousarray(array, np.float64).reshape(np.shape(array))  # sums depend on the order in memory
        self.shapes[key] = values.shape
        parts = {key: excerpt(values)}
        if values.ndim > 1 and values.size > parts[key].size:
            axes = tuple(axis for axis in range(values.ndim) if axis != 1)
            parts[key + CHANNELS] = np.stack([values.mean(axes), np.sqrt(np.square(values).mean(axes))])
        digest = zlib.crc32(b"".join(part.tobytes() for part in parts.values()))
        same = self.digests.setdefault((digest, values.shape), key)
        if same != key and all(
            _equal(part, self.excerpts.get(same + name[len(key) :])) for name, part in parts.items()
        ):
            self.aliases[key] = same
        else:
            self.excerpts.update(parts)

    def get(self, key: str) -> np.ndarray:
        """Return the excerpt of a tensor."""
        return self.excerpts[self.aliases.get(key, key)]

    def channels(self, key: str) -> np.ndarray | None:
        """Return mean and root mean square of the channels, (2, C); None if the excerpt is the whole tensor."""
        return self.excerpts.get(self.aliases.get(key, key) + CHANNELS)

    def save(self, path: str) -> None:
        """Write a safetensors file. Raises UserError if it exists or cannot be written."""
        rest = {
            "version": VERSION,
            "framework": self.framework,
            "precision": self.precision,
            "aliases": self.aliases,
            "shapes": self.shapes,
            "passes": {name: [list(call) for call in calls] for name, calls in self.passes.items()},
            "steps": self.steps,
            "files": self.files,
            "settings": self.settings,
        }
        files.write(path, self.excerpts, {"record": json.dumps(rest)})


def load(path: str) -> Record:
    """Read the file of a record.

    Raises:
        UserError: it is missing, damaged or of another version of the program.
    """
    excerpts, metadata = files.read(path)
    try:
        rest = json.loads(metadata["record"])
        if rest["version"] != VERSION:
            raise ValueError(f"version {rest['version']}, not {VERSION}")
        passes = {
            name: [
                Call(*call)._replace(files=tuple(call[4]), call_sites=tuple(call[5]), span=tuple(call[8]))
                for call in calls
            ]
            for name, calls in rest["passes"].items()
        }
        shapes = {key: tuple(shape) for key, shape in rest["shapes"].items()}
        return Record(
            rest["framework"],
            rest["precision"],
            excerpts,
            rest["aliases"],
            shapes,
            passes,
            rest["steps"],
            rest["files"],
            rest["settings"],
            {},
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a record of tools/compare.py ({error}); compare again") from None


def empty(framework: str, precision: str, settings: Mapping[str, Any]) -> Record:
    """Return a record without tensors."""
    return Record(framework, precision, {}, {}, {}, {}, [], {}, dict(settings), {})


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


def _equal(a: np.ndarray, b: np.ndarray | None) -> bool:
    return b is not None and np.array_equal(a, b)
