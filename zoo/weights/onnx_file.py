"""Files of exported models (.onnx): their metadata, and what is refused before ONNX Runtime sees the graph.

The protocol buffer is read here as far as that needs, so neither onnx nor onnxruntime is. A file may come from a
stranger, so it must be complete in itself and have the standard operators alone: no tensors in other files, no
operators of a library, no functions of its own. All metadata_props are strings; those that are no plain text hold
JSON, so that a program in any language reads them. Every value is checked before it is used, by the annotation of its
field, and none can ask for more memory than its own size is worth.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_type_hints

from zoo.data.convert import convert
from zoo.data.errors import UserError, parsing
from zoo.data.fields import Checked, Deviations, Means, Natural, NotNegative
from zoo.data.formats import regular
from zoo.frameworks import Framework
from zoo.weights import reading
from zoo.weights.reading import Value, parse_message

FORMAT, FORMAT_VERSION = "vision-zoo", "1"
KINDS = {  # task -> output of a graph that takes normalized pixels, and of one with preprocessing
    "classify": ("logits", "probabilities"),
    "multilabel": ("logits", "class_probabilities"),
    "segment": ("logits", "class_map"),
    "face": ("embedding", "unit_embedding"),
}
PRECISIONS = ("fp32", "fp16", "int8")
TEXTS = ("model", "task", "protocol", "framework", "precision")  # properties that are no JSON
MAX_STATE = 2**26  # numbers in all states together
STANDARD_DOMAINS = ("", "ai.onnx")
PROPERTY = 14  # field of a model with a key and a value
DOMAIN = 7  # field of a node
EXTERNAL = (13, 14)  # fields of a tensor that say that its numbers are in another file
REFUSED = {20: "training information", 25: "functions of its own"}  # fields of a model
# Kind of a message -> its fields that hold other messages, and the kinds of these; names are those of onnx.proto.
MESSAGES = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}


class Section(Checked):
    """Base of the parts of the metadata: an object of JSON, whose values have the types of the annotations."""

    @classmethod
    def parse(cls, value: Any) -> Any:
        """Make one of an object of JSON. Raises ValueError or TypeError."""
        require(isinstance(value, dict), "must be an object")
        hints = get_type_hints(cls)
        require(value.keys() <= hints.keys(), "has an unknown key")
        return cls(**{key: convert(item, hints[key]) for key, item in value.items()})


@dataclass(frozen=True)
class Input(Section):
    """The graph's input.

    Attributes:
        layout: NCHW or NTCHW for float32, NHWC or NTHWC for uint8; T is the number of frames of a clip.
        dtype: float32 or uint8.
        mean, std: of the normalization (pixel / 255 - mean) / std, in RGB.
        normalized: whether the caller normalizes; otherwise the graph does, and takes pixels as they are.
    """

    name: str
    layout: Literal["NCHW", "NTCHW", "NHWC", "NTHWC"]
    dtype: Literal["float32", "uint8"]
    mean: Means
    std: Deviations
    normalized: bool
    color_order: Literal["RGB"] = "RGB"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_float = self.dtype == "float32"
        require(self.layout.endswith("CHW" if is_float else "HWC"), f"{self.dtype} has another layout")
        require(self.normalized == is_float, "normalized must be true for float32, false for uint8")


@dataclass(frozen=True)
class Output(Section):
    name: str
    kind: str


class State(NamedTuple):
    """A tensor that a streaming graph takes with each frame and returns for the next one; it starts with zeros.

    Attributes:
        input, output: its names in the graph; the latter is next_ and the former.
        shape: float32, of one stream: the first size is that of the batch, 1.
    """

    input: str
    output: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, value: Any) -> "State":
        """Make one of a list of JSON. Raises ValueError."""
        state = cls(*convert(value, tuple[str, str, tuple[int, ...]]))
        require(state.output == f"next_{state.input}", "the output of a state must be next_ and its input")
        require(min(state.shape, default=0) > 0, "a state's sizes must be above 0")
        return state


@dataclass(frozen=True)
class Weights(Section):
    """The file that the weights come from: its path as it was given, and its SHA-256 in hexadecimal digits."""

    name: str
    sha256: str


@dataclass(frozen=True)
class OnnxMetadata(Checked):
    """The metadata of an exported model.

    Attributes:
        record: of the checkpoint: `recipe`, `classes`, `step`; what an evaluation or a prediction needs of it.
        arch: the resolved architecture, a value for each field of the model's Arch.
        protocol: id of the recipe's evaluations.
        classes: names of the outputs, in order; none for faces, or where classes are only numbers.
        palette: of a segmentation model, red, green and blue of each class.
        precision: fp32, fp16 or int8.
        max_difference: of the outputs from the framework's, relative to the largest.
        preprocessing: the recipe's data settings that decide what is between a file and the input.
    """

    record: dict
    model: str
    task: Literal["classify", "multilabel", "segment", "face"]
    arch: dict
    protocol: str
    classes: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    weights: Weights
    framework: Framework
    precision: Literal["fp32", "fp16", "int8"]
    opset: Natural
    max_difference: NotNegative
    input: Input
    output: Output
    preprocessing: dict
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.output.kind in KINDS[self.task], f"the output of the task {self.task} is no {self.output.kind}")
        kinds = {"recipe": str, "step": int, "classes": list}
        require(all(isinstance(self.record.get(key), kind) for key, kind in kinds.items()), f"record holds {[*kinds]}")
        is_printable = all(isinstance(name, str) and name.isprintable() for name in self.record["classes"])
        require(is_printable and all(map(str.isprintable, self.classes)), "names of classes must be printable")
        outputs = self.arch.get("num_classes", len(self.classes))
        require(len(self.classes) in (0, outputs), f"classes must have a name for each of {outputs} outputs")
        require(len(self.palette) in (0, len(self.classes)), "palette must have a color for each class")
        require(all(0 <= level <= 255 for color in self.palette for level in color), "colors are from 0 to 255")
        count = sum(math.prod(state.shape) for state in self.states)
        require(count <= MAX_STATE, f"states must have at most {MAX_STATE} numbers")

    def to_properties(self) -> dict[str, str]:
        properties = {"format": FORMAT, "format_version": FORMAT_VERSION}
        for name, value in asdict(self).items():
            properties[name] = value if name in TEXTS else json.dumps(value, ensure_ascii=False, allow_nan=False)
        return properties

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], path: str) -> "OnnxMetadata":
        """Read the metadata_props of a file; properties of other names are left alone."""
        if properties.get("format") != FORMAT:
            raise UserError(f"{path} has no metadata of this zoo; only files that zoo export has written are read")
        version = str(properties.get("format_version"))[:20]
        if version != FORMAT_VERSION:
            raise UserError(
                f"{path}: its metadata have the version {version}, and this zoo reads {FORMAT_VERSION}; export the "
                "checkpoint again with this zoo"
            )
        with parsing(f"{path}: its metadata are damaged", "export the checkpoint again"):
            values: dict[str, Any] = {}
            for name, hint in get_type_hints(cls).items():
                require(name in properties, f"{name}: is missing")
                text = properties[name]
                values[name] = convert(text if name in TEXTS else regular.parse_json(text, finite=True), hint)
            return cls(**values)


def require(condition: Any, message: str) -> None:
    """Raise ValueError with a message unless a condition holds."""
    if not condition:
        raise ValueError(message)


class OnnxFile(NamedTuple):
    """An exported model.

    Attributes:
        content: the whole file, which no one can change any more.
    """

    path: str
    content: bytes
    metadata: OnnxMetadata


def read(path: str) -> OnnxFile:
    """Read and check an exported model."""
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file")
    reading.refuse(path)
    with parsing(f"{path} cannot be read", "name an .onnx file of zoo export"):
        content = regular.read(path)
    with parsing(f"{path} is no ONNX file that is read here", "download it or export the checkpoint again"):
        properties = _check(memoryview(content))
    return OnnxFile(path, content, OnnxMetadata.from_properties(properties, path))


def _check(content: memoryview) -> dict[str, str]:
    """Return the properties of a model. Raises ValueError for what is refused; a graph may nest to any depth."""
    properties: dict[str, str] = {}
    has_graph = False
    left = [("model", content)]
    while left:
        kind, message = left.pop()
        for number, value in parse_message(message, fixed=True):
            _check_field(kind, number, value)
            inner = MESSAGES[kind].get(number)
            if inner is not None:
                left.append((inner, _bytes(value)))
                has_graph = has_graph or inner == "graph"
            elif kind == "model" and number == PROPERTY:
                fields = {key: str(_bytes(text), "utf-8") for key, text in parse_message(_bytes(value), fixed=True)}
                properties[fields.get(1, "")] = fields.get(2, "")
    if not has_graph:
        raise ValueError("it holds no graph")
    return properties


def _check_field(kind: str, number: int, value: Value) -> None:
    if kind == "model" and number in REFUSED:
        raise ValueError(f"it holds {REFUSED[number]}")
    if kind == "tensor" and number in EXTERNAL and value not in (0, b""):
        raise ValueError("a tensor of it is in another file")
    if kind == "node" and number == DOMAIN and (name := str(_bytes(value), "utf-8")) not in STANDARD_DOMAINS:
        raise ValueError(f"it has an operator of the domain {name[:40]!r}, which is no standard one")


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return value
