"""Files of exported models (.onnx): their metadata, and what is refused before ONNX Runtime sees the graph.

The protocol buffer is read here as far as that needs, so neither onnx nor onnxruntime is. A file may come from a
stranger, so it must be complete in itself and have the standard operators alone: no tensors in other files, no
operators of a library, no functions of its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

from zoo.data.errors import BadSample, UserError
from zoo.data.formats import regular
from zoo.weights.onnx_metadata import OnnxMetadata
from zoo.weights.protobuf import Value, parse_message

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
