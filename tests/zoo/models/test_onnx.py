"""Graphs of exported models: equal to the modules of every framework (onnx_cases.py), and made of standard parts."""

import re
import sys

import numpy as np
import pytest

from tests.helpers import frameworks
from tests.zoo.models.tsm.golden import drawn
from zoo.data import extras
from zoo.data.errors import UserError
from zoo.models import FOLDER, list_models, load_graph, load_spec

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from zoo.models.onnx_graph import Graph  # noqa: E402 -- needs onnx
from zoo.models.onnx_nodes import IR_VERSION, OPSET  # noqa: E402

TINY = {  # model -> architecture and input
    "resnet": (dict(depth=18, width=8), (3, 32, 32)),
    "tsm": (dict(depth=18, width=8, segments=2), (2, 3, 32, 32)),
    "tsm_mobilenet_v2": (dict(width=8, segments=2), (2, 3, 32, 32)),
    "deeplabv3plus": (dict(depth=18, width=8, head_width=8, low_width=8, aux_width=8), (3, "height", "width")),
    "arcface": (dict(depth=18, width=8, embedding=8, size=32), (3, 32, 32)),
}

EXPORTED = [name for name in list_models() if (FOLDER / name / "onnx.py").exists()]


def tiny(name):
    """Return a model, and the shapes of its tensors."""
    options, shape = TINY[name]
    spec = load_spec(name)
    arch = spec.Arch(num_classes=4, **options)
    shapes = {key: size for key, size in spec.shapes(arch).items() if key not in spec.SHARDED_PARAMETERS}
    graph = Graph({key: drawn(key, size) for key, size in shapes.items()})
    output = load_graph(name).build(graph, arch, graph.input("input", ("batch", *shape)))
    graph.output("output", output, ["batch", *["size"] * (len(graph.shape(output)) - 1)])
    return graph.model(name, {"author": "somebody"}), shapes


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.models.onnx_cases"))
def test_graph(framework, module, case):
    frameworks.check(framework, module, case)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_graph_has_standard_operators_and_every_weight_once(name):
    model, shapes = tiny(name)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", OPSET)]
    assert model.ir_version == IR_VERSION and {node.domain for node in model.graph.node} == {""}
    assert not any(attribute.name == "training_mode" for node in model.graph.node for attribute in node.attribute)
    assert [(each.key, each.value) for each in model.metadata_props] == [("author", "somebody")]
    names = [tensor.name for tensor in model.graph.initializer]
    contents = [(tensor.data_type, tuple(tensor.dims), tensor.raw_data) for tensor in model.graph.initializer]
    constants = [content for name, content in zip(names, contents) if name.startswith("constant_")]
    assert len(set(names)) == len(names) and len(set(constants)) == len(constants)
    weights = {key for key in shapes if not key.startswith("aux.")}  # the auxiliary head trains the model
    assert {name for name in names if not name.startswith("constant_")} == weights
    assert len({node.name for node in model.graph.node}) == len(model.graph.node)


@pytest.mark.parametrize("name", EXPORTED)
def test_the_sizes_that_do_not_depend_on_the_input_are_known(name):
    model, _ = tiny(name)
    sizes_of = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    sizes = [sizes_of[node.output[0]] for node in model.graph.node if node.op_type in ("Conv", "Resize", "Expand")]
    first = 4 if name == "deeplabv3plus" else 2  # of the axes that are fixed, but for the channels
    assert sizes and all(axes[1].dim_value and all(axis.dim_value for axis in axes[first:]) for axes in sizes)


def test_a_wrong_graph_is_refused_where_it_is_built():
    graph = Graph({"fc.weight": np.zeros((3, 5), np.float32), "fc.bias": np.zeros(3, np.float32)})
    x = graph.input("x", ("batch", 4))
    with pytest.raises(UserError, match=r"Gemm fc: no valid ONNX \(.*5 and 4\); look at zoo/models/<model>/onnx.py"):
        graph.linear("fc", x)
    with pytest.raises(ValueError, match="size of axis 0 depends on the input"):
        graph.size(x, 0)
    with pytest.raises(KeyError, match=r"layer1.0.conv1.weight"):
        graph.scope("layer1").scope("0").conv("conv1", graph.input("image", ("batch", 3, 8, 8)))


def test_onnx_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=re.escape(extras.missing("onnx"))):
        load_graph("resnet")
