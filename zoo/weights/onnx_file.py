"""Files of exported models (.onnx): their metadata, and what is refused before ONNX Runtime sees the graph.

The protocol buffer is read here as far as that needs, so neither onnx nor onnxruntime is. A file may come from a
stranger, so it must be complete in itself and have the standard operators alone: no tensors in other files, no
operators of a library, no functions of its own. All metadata_props are strings; those that are no plain text hold
JSON, so that a program in any language reads them. Every value is checked before it is used, and none can ask for more
memory than its own size is worth.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from zoo.data.errors import BadSample, UserError
from zoo.data.formats import regular
from zoo.weights.ckpt import Value, parse_message

FORMAT, FORMAT_VERSION = "vision-zoo", "1"
LAYOUTS = {"float32": ("NCHW", "NTCHW"), "uint8": ("NHWC", "NTHWC")}  # by dtype of the input
KINDS = {  # task -> what its output may be
    "classify": ("logits", "probabilities"),
    "segment": ("logits", "class_map"),
    "face": ("embedding", "unit_embedding"),
}
PRECISIONS = ("fp32", "fp16", "int8")
FRAMEWORKS = ("torch", "paddle", "mindspore")
TEXTS = ("model", "task", "protocol", "framework", "precision")  # properties that are no JSON
MAX_TEXT = 1000  # characters of a name or a protocol
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # characters that a terminal obeys; names of classes are printed
MAX_STATE = 2**26  # numbers in all states together
EXTENSION = ".onnx"
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


@dataclass(frozen=True)
class Input:
    """The graph's input.

    Attributes:
        name: of the input in the graph.
        layout: NCHW or NTCHW for float32, NHWC or NTHWC for uint8; T is the number of frames of a clip.
        dtype: float32 or uint8.
        mean, std: of the normalization (pixel / 255 - mean) / std, in RGB.
        normalized: whether the caller normalizes; otherwise the graph does, and takes pixels as they are.
        color_order: of the channels.
    """

    name: str
    layout: str
    dtype: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    normalized: bool
    color_order: str = "RGB"

    def __post_init__(self) -> None:
        _check_name(self.name)
        require(self.dtype in LAYOUTS, f"dtype must be one of {', '.join(LAYOUTS)}")
        require(
            self.layout in LAYOUTS[self.dtype], f"layout of {self.dtype} must be {' or '.join(LAYOUTS[self.dtype])}"
        )
        require(self.normalized is (self.dtype == "float32"), "normalized must be true for float32, false for uint8")
        require(self.color_order == "RGB", "color_order must be RGB")
        require(all(map(_is_number, (*self.mean, *self.std))), "mean and std must be finite numbers")
        require(len(self.mean) == len(self.std) == 3 and min(self.std) > 0, "mean and std must be three, std above 0")


@dataclass(frozen=True)
class Output:
    """The graph's output.

    Attributes:
        name: of the output in the graph.
        kind: logits, probabilities, class_map, embedding or unit_embedding.
    """

    name: str
    kind: str

    def __post_init__(self) -> None:
        _check_name(self.name)
        require(any(self.kind in kinds for kinds in KINDS.values()), f"kind {self.kind!r} is unknown")


@dataclass(frozen=True)
class State:
    """A tensor that a streaming graph takes with each frame and returns for the next one; it starts with zeros.

    Attributes:
        input, output: its names in the graph; the latter is next_ and the former.
        shape: float32, of one stream: the first size is that of the batch, 1.
    """

    input: str
    output: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_name(self.input)
        _check_name(self.output)
        require(self.output == f"next_{self.input}", "the output of a state must be next_ and its input")
        require(0 < len(self.shape) <= 8, "a state must have 1 to 8 dimensions")
        require(all(_is_count(size) and size > 0 for size in self.shape), "a state's sizes must be whole and above 0")
        require(math.prod(self.shape) <= MAX_STATE, f"a state must have at most {MAX_STATE} numbers")


@dataclass(frozen=True)
class Weights:
    """The file that the weights come from: its path as it was given, and its SHA-256 in hexadecimal digits."""

    name: str
    sha256: str

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and len(self.name) <= 4096, "name must be a path")
        require(isinstance(self.sha256, str) and re.fullmatch("[0-9a-f]{64}", self.sha256), "sha256 must be 64 digits")


@dataclass(frozen=True)
class OnnxMetadata:
    """The metadata of an exported model.

    Attributes:
        record: of the checkpoint: `recipe`, `classes`, `step`; what an evaluation or a prediction needs of it.
        model, task: names.
        arch: the resolved architecture, a value for each field of the model's Arch.
        protocol: id of the recipe's evaluations.
        classes: names of the outputs, in order; none for faces, or where classes are only numbers.
        palette: of a segmentation model, red, green and blue of each class.
        weights: the file that was exported.
        framework: whose output the graph was compared with.
        precision: fp32, fp16 or int8.
        opset: version of the operators.
        max_difference: of the outputs from the framework's, relative to the largest.
        input, output: of the graph.
        preprocessing: the recipe's data settings that decide what is between a file and the input.
        states: of a streaming graph.
    """

    record: dict[str, Any]
    model: str
    task: str
    arch: dict[str, Any]
    protocol: str
    classes: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    weights: Weights
    framework: str
    precision: str
    opset: int
    max_difference: float
    input: Input
    output: Output
    preprocessing: dict[str, Any]
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
        for name in TEXTS:
            require(len(getattr(self, name)) <= MAX_TEXT, f"{name} has more than {MAX_TEXT} characters")
        for name, choices in (("task", KINDS), ("framework", FRAMEWORKS), ("precision", PRECISIONS)):
            require(getattr(self, name) in choices, f"{name} must be one of {', '.join(choices)}")
        require(re.fullmatch("[a-z][a-z0-9_]*", self.model), "model must be the name of a model")
        require(self.output.kind in KINDS[self.task], f"the output of the task {self.task} is no {self.output.kind}")
        require(isinstance(self.record.get("recipe"), str), "record must hold the recipe")
        require(_is_names(self.record.get("classes")), "record must hold the classes")
        require(_is_count(self.record.get("step")), "record must hold the step")
        require(_is_names(self.classes), "classes must be a list of names")
        outputs = self.arch.get("num_classes", len(self.classes))
        require(len(self.classes) in (0, outputs), f"classes must have a name for each of {outputs} outputs")
        require(all(map(_is_color, self.palette)), "palette must be a list of red, green and blue")
        require(len(self.palette) in (0, len(self.classes)), "palette must have a color for each class")
        require(_is_count(self.opset), "opset must be a number")
        require(_is_number(self.max_difference) and self.max_difference >= 0, "max_difference must not be negative")
        require(
            sum(math.prod(state.shape) for state in self.states) <= MAX_STATE,
            f"states must have at most {MAX_STATE} numbers",
        )

    def to_properties(self) -> dict[str, str]:
        """Return the metadata_props of the file."""
        values = asdict(self)
        values["states"] = [[state.input, state.output, list(state.shape)] for state in self.states]
        properties = {"format": FORMAT, "format_version": FORMAT_VERSION}
        for name, value in values.items():
            properties[name] = value if name in TEXTS else json.dumps(value, ensure_ascii=False, allow_nan=False)
        return properties

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], path: str) -> "OnnxMetadata":
        """Read the metadata_props of a file; properties of other names are left alone.

        Args:
            properties: by name.
            path: of the file, for messages.

        Raises:
            UserError: the file is not one of tools/export.py, or a value is not what it must be.
        """
        if properties.get("format") != FORMAT:
            raise UserError(f"{path} has no metadata of this zoo; only files that tools/export.py has written are read")
        version = str(properties.get("format_version"))[:20]
        if version != FORMAT_VERSION:
            raise UserError(
                f"{path}: its metadata have the version {version}, and this zoo reads {FORMAT_VERSION}; export the "
                "checkpoint again with this zoo"
            )
        values: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            try:
                require(isinstance(properties.get(name), str), "is missing")
                text = properties[name]
                values[name] = text if name in TEXTS else READERS[name](regular.parse_json(text, finite=True))
            except (ValueError, TypeError) as error:
                raise _damaged(path, f"{name}: {error}") from None
        try:
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise _damaged(path, str(error)) from None


def require(condition: Any, message: str) -> None:
    """Raise ValueError with a message unless a condition holds."""
    if not condition:
        raise ValueError(message)


def _dict(value: Any) -> dict[str, Any]:
    require(isinstance(value, dict), "must be an object")
    return dict(value)


def _list(value: Any) -> list[Any]:
    require(isinstance(value, list), "must be a list")
    return list(value)


def _same(value: Any) -> Any:
    return value


def _input(value: Any) -> Input:
    fields = _dict(value)
    return Input(**{**fields, "mean": tuple(_list(fields.get("mean"))), "std": tuple(_list(fields.get("std")))})


def _states(value: Any) -> tuple[State, ...]:
    rows = [_list(row) for row in _list(value)]
    require(all(len(row) == 3 for row in rows), "a state must have two names and a shape")
    return tuple(State(row[0], row[1], tuple(_list(row[2]))) for row in rows)


READERS: dict[str, Callable[[Any], Any]] = {  # property -> its value from that of its JSON
    "record": _dict,
    "arch": _dict,
    "classes": lambda value: tuple(_list(value)),
    "palette": lambda value: tuple(tuple(_list(color)) for color in _list(value)),
    "weights": lambda value: Weights(**_dict(value)),
    "opset": _same,
    "max_difference": _same,
    "input": _input,
    "output": lambda value: Output(**_dict(value)),
    "preprocessing": _dict,
    "states": _states,
}


def _check_name(name: Any) -> None:
    require(isinstance(name, str) and 0 < len(name) <= MAX_TEXT, f"a name must have 1 to {MAX_TEXT} characters")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and not CONTROL.search(value)


def _is_color(value: tuple[Any, ...]) -> bool:
    return len(value) == 3 and all(_is_count(level) and level < 256 for level in value)


def _damaged(path: str, reason: str) -> UserError:
    return UserError(f"{path}: its metadata are damaged ({reason[:300]}); export the checkpoint again")


class OnnxFile(NamedTuple):
    """An exported model.

    Attributes:
        path: of its file.
        content: the whole file, which no one can change any more.
        metadata: what it says about itself.
    """

    path: str
    content: bytes
    metadata: OnnxMetadata


def is_onnx(path: str | None) -> bool:
    """Return whether a path is that of an exported model, by its name."""
    return path is not None and path.lower().endswith(EXTENSION)


def read(path: str) -> OnnxFile:
    """Read and check an exported model.

    Raises:
        UserError: The file cannot be read, is none of tools/export.py, is damaged, or has more than standard operators.
    """
    content = _read_bytes(path)
    try:
        properties = _check(memoryview(content))
    except ValueError as error:
        raise UserError(f"{path} is no ONNX file that is read here ({error}); export the checkpoint again") from None
    return OnnxFile(path, content, OnnxMetadata.from_properties(properties, path))


def read_metadata(path: str) -> OnnxMetadata:
    """Read the metadata of an exported model. Raises UserError as `read`."""
    return read(path).metadata


def _read_bytes(path: str) -> bytes:
    try:
        return regular.read(path)
    except BadSample as error:
        raise UserError(f"{path}: {error}; name an .onnx file of tools/export.py") from None
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{path}: {reason}") from None


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
                fields = dict(_strings(_bytes(value)))
                name = fields.get(1, "")
                if name in properties:
                    raise ValueError(f"it has the property {name[:40]!r} twice")
                properties[name] = fields.get(2, "")
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


def _strings(message: memoryview) -> Iterator[tuple[int, str]]:
    for number, value in parse_message(message, fixed=True):
        yield number, str(_bytes(value), "utf-8")


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return value
