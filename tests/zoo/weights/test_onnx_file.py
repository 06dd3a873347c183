"""Exported files: metadata survive a round trip; what is no complete graph of standard operators is refused."""

import contextlib
import json
import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.onnx_cpp2py_export.shape_inference import infer_shapes

from tests.campaign.fuzzing.mutations import mutate_bytes, varint
from zoo.data.errors import UserError
from zoo.weights import onnx_file
from zoo.weights.onnx_file import Input, OnnxMetadata, Output, Weights

METADATA = OnnxMetadata(
    record={"recipe": "model:\n  name: deeplabv3plus\n", "classes": ["road", "Gebäude"], "step": 500},
    model="deeplabv3plus",
    task="segment",
    arch={"depth": 18, "rates": [2, 4, 6], "crop": None},
    protocol="streets/whole@160x320",
    classes=("road", "Gebäude"),
    palette=((128, 64, 128), (70, 70, 70)),
    weights=Weights("runs/streets/checkpoints/best", "0123456789abcdef" * 4),
    framework="mindspore",
    precision="fp32",
    opset=18,
    max_difference=1.5e-06,
    input=Input("input", "NCHW", "float32", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), True),
    output=Output("output", "logits"),
    preprocessing={"base_size": [160, 320]},
)


FLOATS = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")}
WEIGHT = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")


def model(*nodes, tensors=(WEIGHT,), sparse=(), functions=()):
    """Return a model of one addition, or of other nodes."""
    nodes = nodes or (helper.make_node("Add", ["x", "w"], ["y"]),)
    graph = helper.make_graph(nodes, "g", [FLOATS["x"]], [FLOATS["y"]], list(tensors), sparse_initializer=list(sparse))
    made = helper.make_model(graph, functions=list(functions))
    helper.set_model_props(made, METADATA.to_properties())
    return made


def external(location="weights.bin"):
    """Return a tensor whose numbers are in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def branch(tensor):
    """Return a node with a tensor two graphs below."""
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "inner", [], [FLOATS["y"]])
    condition = helper.make_node("If", ["b"], ["y"], then_branch=inner, else_branch=inner)
    return helper.make_node("If", ["b"], ["y"], then_branch=helper.make_graph([condition], "outer", [], []))


def write(tmp_path, content):
    path = tmp_path / "a.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return str(path)


def test_a_file_is_read_with_its_metadata(tmp_path):
    made = model()
    made.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.5))  # a number of fixed size
    made.graph.initializer.append(helper.make_tensor("z", TensorProto.DOUBLE, [2], [1.0, 2.0]))
    path = write(tmp_path, made)
    file = onnx_file.read(path)
    assert (file.path, file.metadata) == (path, METADATA)
    assert onnx.load_from_string(file.content) == made


CUSTOM = helper.make_node("Add", ["x", "w"], ["y"], domain="com.microsoft")
IDENTITY = helper.make_node("Identity", ["x"], ["y"])
FUNCTION = helper.make_function("own", "F", ["x"], ["y"], [IDENTITY], [helper.make_opsetid("", 18)])
SPARSE = helper.make_sparse_tensor(external(), numpy_helper.from_array(np.zeros(3, np.int64), "i"), [3])


@pytest.mark.parametrize(
    "made, reason",
    [
        (model(tensors=[external()]), "a tensor of it is in another file"),
        (model(tensors=[external("/etc/passwd")]), "a tensor of it is in another file"),
        (model(tensors=[], sparse=[SPARSE]), "a tensor of it is in another file"),
        (model(helper.make_node("Constant", [], ["y"], value=external())), "a tensor of it is in another file"),
        (model(branch(external())), "a tensor of it is in another file"),
        (model(CUSTOM), "an operator of the domain 'com.microsoft', which is no standard one"),
        (model(functions=[FUNCTION]), "it holds functions of its own"),
        (b"\x08\x01", "it holds no graph"),
        (b"\x3a\x00" + b"\x3a\x05abc", "it is truncated"),
        (model().SerializeToString() + varint(1 << 32 | 25 << 3 | 2) + b"\0", "a field of the number 536870937"),
        (b"\x02\x00", "a field of the number 0"),
        (b"\x13no file of this kind", "a field of wire type"),
        (b"\xff" * 100, "a number of more than 64 bits|it is truncated"),
        (b"\x38\x01", "a number where a message is expected"),
        (b"\x3a\x00\x72\x04\x0a\x02\xff\xfe", "can't decode"),
    ],
)
def test_what_is_refused(made, reason, tmp_path):
    path = write(tmp_path, made)
    with pytest.raises(UserError, match=f"a.onnx is no ONNX file that is read here .*({reason})"):
        onnx_file.read(path)


def message_fields(descriptor):
    return [field for field in descriptor.fields if field.message_type]


def holds_graphs(descriptor, above=()):
    """Return whether a kind of message has nodes or tensors somewhere below it, or is one."""
    name = descriptor.full_name
    inner = [] if name in above else [field.message_type for field in message_fields(descriptor)]
    return name in ("onnx.NodeProto", "onnx.TensorProto") or any(holds_graphs(each, (*above, name)) for each in inner)


def test_all_fields_that_hold_graphs_are_looked_into_or_refused():
    """By the definitions of the installed onnx, so that a field of a newer version is noticed."""
    kinds = {"model": onnx.ModelProto, "graph": onnx.GraphProto, "node": onnx.NodeProto}
    kinds |= {"attribute": onnx.AttributeProto, "sparse": onnx.SparseTensorProto, "tensor": onnx.TensorProto}
    assert kinds.keys() == onnx_file.MESSAGES.keys()
    for kind, message in kinds.items():
        fields = {
            field.number: field for field in message_fields(message.DESCRIPTOR) if holds_graphs(field.message_type)
        }
        known = {*onnx_file.MESSAGES[kind], *(onnx_file.REFUSED if kind == "model" else ())}
        assert {*fields} == known, kind
        for number, inner in onnx_file.MESSAGES[kind].items():
            assert fields[number].message_type is kinds[inner].DESCRIPTOR


def refused_parts(message):
    """Yield what is refused in a message, as another parser sees it."""
    name = message.DESCRIPTOR.name
    if name == "ModelProto":
        yield from ["function"] * len(message.functions) + ["training"] * len(message.training_info)
    if name == "NodeProto" and message.domain not in ("", "ai.onnx"):
        yield message.domain
    if name == "TensorProto" and (message.data_location == TensorProto.EXTERNAL or len(message.external_data)):
        yield "external"
    for field, value in message.ListFields():
        if field.message_type:
            for each in value if field.is_repeated else [value]:
                yield from refused_parts(each)


def views(content):
    """Return the models that protobuf's parsers see in a file: ONNX Runtime's in C++, and Python's."""
    found = []
    for parse in (lambda: infer_shapes(content, False, False, False), lambda: content):
        with contextlib.suppress(Exception):
            found.append(onnx.load_from_string(parse()))
    return found


def field(rng, number, content):
    """Return a field whose key may be longer than need be, or have more than 32 bits."""
    key = (number << 3 | 2) + (rng.randrange(8) << 32) * (rng.random() < 0.5)
    text = bytearray(varint(key))
    if rng.random() < 0.1 and len(text) < 5:
        text = bytearray([*text[:-1], text[-1] | 128, 0])
    return bytes(text) + varint(len(content)) + content


HIDDEN = [  # the fields on the way to what is refused, and its content
    ((25,), FUNCTION.SerializeToString()),
    ((20,), b"\n\0"),
    ((7, 1), CUSTOM.SerializeToString()),
    ((7, 5), external().SerializeToString()),
    ((7, 15, 1), external().SerializeToString()),
    ((7, 1, 5, 5), external().SerializeToString()),
    ((7, 1, 5, 6, 1), CUSTOM.SerializeToString()),
    ((7, 1, 7), b"com.microsoft"),
    ((14,), b"\n\x05model\x12\x05other"),
    ((14, 2), b"other"),
]


def test_protobuf_sees_nothing_that_is_refused_here(tmp_path):
    """What is accepted has no hidden part, and the same metadata, for the parser of ONNX Runtime."""
    rng, files, compared, accepted = random.Random(1), [m.SerializeToString() for m in (model(), model(IDENTITY))], 0, 0
    for _ in range(3000):
        content = rng.choice(files)
        for _ in range(rng.choice((0, 1, 1, 2))):
            path, hidden = rng.choice(HIDDEN)
            for number in reversed(path):
                hidden = field(rng, number, hidden)
            content = content + hidden if rng.random() < 0.8 else hidden + content
        if rng.random() < 0.3:
            content = mutate_bytes(rng, content)
        try:
            properties = onnx_file._check(memoryview(content))
        except ValueError:
            continue
        accepted += 1
        for seen in views(content):
            compared += 1
            assert list(refused_parts(seen)) == []
            assert {entry.key: entry.value for entry in seen.metadata_props} == properties
    assert accepted > 300 and compared > 500


def test_what_is_no_file(tmp_path):
    with pytest.raises(UserError, match="none.onnx: no such file"):
        onnx_file.read(str(tmp_path / "none.onnx"))
    with pytest.raises(UserError, match="not a regular file"):
        onnx_file.read(str(tmp_path))


def read(**changes):
    """Read the metadata with some properties replaced; None leaves one out."""
    properties = {**METADATA.to_properties(), **changes}
    return OnnxMetadata.from_properties(
        {key: value for key, value in properties.items() if value is not None}, "a.onnx"
    )


def test_properties_are_texts_and_json_and_those_of_other_programs_are_left_alone():
    properties = METADATA.to_properties()
    assert all(isinstance(value, str) for value in properties.values())
    assert read() == read(author="somebody", onnx_version="?") == METADATA
    assert (properties["format"], properties["format_version"]) == ("vision-zoo", "1")
    assert (properties["model"], properties["precision"], properties["opset"]) == ("deeplabv3plus", "fp32", "18")
    assert json.loads(properties["classes"]) == ["road", "Gebäude"]
    assert json.loads(properties["input"])["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": None}, "has no metadata of this zoo"),
        ({"format": "mmdeploy"}, "has no metadata of this zoo"),
        ({"format_version": "2"}, ".*version 2, and this zoo reads 1"),
        ({"model": None}, ".*model: is missing"),
        ({"states": None}, ".*states: is missing"),
    ],
)
def test_files_of_other_programs_and_versions_are_named(changes, message):
    with pytest.raises(UserError, match=f"a.onnx:? ?{message}"):
        read(**changes)


HOSTILE = {
    "task": ["detect"],
    "framework": ["keras"],
    "precision": ["fp8"],
    "opset": ["-1", '"18"', "null"],
    "max_difference": ["-1", "NaN", "1e999"],
    "classes": ["{}", '["a"', "[" * 100_000, r'["a", "\u001b[31mb"]'],
    "palette": ["[[0, 0, 256], [0, 0, 0]]", "[[0, 0, 0]]"],
    "weights": ["{}", '{"name": "a", "sha256": "b", "c": 1}'],
    "record": ["[]", '{"recipe": 1, "classes": [], "step": 0}', '{"recipe": "", "classes": [1], "step": 0}'],
    "preprocessing": ["null", "[" + "[]," * 1_000_001 + "[]]"],
    "output": ['{"name": "output", "kind": "embedding"}', '{"name": "o"}'],
    "states": [
        '[["a", "next_b", [1, 3]]]',
        '[["a", "next_a", [-1, 3]]]',
        '[["a", "next_a", [67108864]], ["c", "next_c", [67108864]]]',
        '[["a", "next_a", []]]',
    ],
}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in HOSTILE.items() for value in values])
def test_a_hostile_value_is_refused(name, value):
    with pytest.raises(UserError, match="a.onnx: its metadata are damaged") as caught:
        read(**{name: value})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float64"},
        {"layout": "NHWC"},
        {"normalized": False},
        {"color_order": "BGR"},
        {"std": [0.2, 0.2, 0]},
        {"size": 224},
    ],
)
def test_a_wrong_input_is_refused(changes):
    fields = {**json.loads(METADATA.to_properties()["input"]), **changes}
    with pytest.raises(UserError, match="its metadata are damaged"):
        read(input=json.dumps(fields))
