"""Exported files are read without onnx; what is no complete graph of standard operators is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.zoo.weights.test_onnx_metadata import METADATA
from zoo.data.errors import UserError
from zoo.weights import onnx_file

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
    assert onnx_file.read_metadata(path) == METADATA


def test_files_by_their_names():
    assert [path for path in ("a.onnx", "A.ONNX", "a.onnx/b", "onnx", None) if onnx_file.is_onnx(path)] == [
        "a.onnx",
        "A.ONNX",
    ]


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
        (b"", "it holds no graph"),
        (b"\x3a\x00" + b"\x3a\x05abc", "it is truncated"),
        (b"no file of this kind", "a field of wire type"),
        (b"\xff" * 100, "a number of more than 64 bits|it is truncated"),
        (b"\x38\x01", "a number where a message is expected"),
        (b"\x3a\x00\x72\x04\x0a\x02\xff\xfe", "can't decode"),
    ],
)
def test_what_is_refused(made, reason, tmp_path):
    path = write(tmp_path, made)
    with pytest.raises(UserError, match=f"a.onnx is no ONNX file that is read here .*({reason})"):
        onnx_file.read(path)


def test_a_branch_without_external_tensors_is_read(tmp_path):
    assert onnx_file.read(write(tmp_path, model(branch(WEIGHT)))).metadata == METADATA


def test_a_property_is_there_once(tmp_path):
    made = model()
    made.metadata_props.add(key="classes", value="[]")
    with pytest.raises(UserError, match="it has the property 'classes' twice"):
        onnx_file.read(write(tmp_path, made))


def test_files_without_metadata(tmp_path):
    made = model()
    del made.metadata_props[:]
    with pytest.raises(UserError, match="a.onnx has no metadata of this zoo"):
        onnx_file.read(write(tmp_path, made))


def test_what_is_no_file(tmp_path):
    with pytest.raises(UserError, match="none.onnx: no such file"):
        onnx_file.read(str(tmp_path / "none.onnx"))
    with pytest.raises(UserError, match="not a regular file"):
        onnx_file.read(str(tmp_path))


def test_every_truncation_and_damaged_byte_is_an_error_or_a_file(tmp_path):
    content, rng = model(branch(WEIGHT)).SerializeToString(), np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(content[: rng.integers(1, len(content) + 1)])
        damaged[rng.integers(len(damaged))] = rng.integers(256)
        try:
            onnx_file.read(write(tmp_path, bytes(damaged)))
        except UserError as error:
            assert "a.onnx" in str(error)


def test_deep_nesting_needs_no_recursion(tmp_path):
    message = b""
    for _ in range(20_000):  # graph in attribute in node in graph
        message = field(1, field(5, field(6, message)))
    with pytest.raises(UserError, match="has no metadata of this zoo"):
        onnx_file.read(write(tmp_path, field(7, message)))


def field(number, content):
    size, length = len(content), b""
    while size >= 128:
        length, size = length + bytes([size % 128 + 128]), size // 128
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
