"""Sides of JAX, ONNX and NumPy beside PyTorch: the same net agrees, and what is changed in it is found."""

import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from zoo import parity
from zoo.data.errors import UserError
from zoo.parity import mapping, side
from zoo.parity.probe import Archive, Partner, Probe
from zoo.parity.record import empty

IMAGES, TOKENS, ROWS = {"x": "float32:4,3,8,8"}, {"x": "int64:2,7"}, {"x": "float32:4,6"}
LIBRARIES = {"nnx_nets.py:Images": "flax", "linen_nets.py:Images": "flax", "equinox_nets.py:build_images": "equinox"}


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """A copy of the nets, whose lines a report names, which it does not of tests."""
    folder = shutil.copytree(Path(__file__).with_name("nets"), tmp_path / "nets")
    monkeypatch.chdir(folder)
    return folder


def compare(first, second, inputs, **options):
    """Compare two sides, FRAMEWORK=FILE:FUNCTION."""
    sides = dict(each.split("=", 1) for each in (first, second))
    return parity.compare(sides, inputs, **options).sides[0]


def agree(judged):
    assert judged.agrees, str(judged)
    return True


def images(net, library, **options):
    """Compare the net of images in PyTorch with another one of a library that is there."""
    pytest.importorskip(library)
    pytest.importorskip("optax")
    channels_last = ["jax"] if library == "flax" else []
    optimizer = {"torch": "torch_nets.py:sgd", "jax": "jax_nets.py:sgd"}
    return compare(
        "torch=torch_nets.py:Images", f"jax={net}", IMAGES, channels_last=channels_last, optimizer=optimizer, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("net", LIBRARIES)
def test_jax_beside_pytorch(nets, net):
    """Their variance in running statistics is another one, which the frameworks' have no option for."""
    judged = images(net, LIBRARIES[net], accept=["running-variance"])
    assert agree(judged) and [each.modules for each in judged.accepted] == [("bn",)]
    parts = {(each.event.name, each.event.part) for each in judged.alone}
    inner = {"conv", "bn", "norm", "fc"}
    assert {(name, part) for name in inner for part in ("input", "output", "output gradient")} <= parts


@pytest.mark.slow
@pytest.mark.parametrize(
    "net, module, said",
    [
        ("nnx_nets.py:Images(epsilon=1e-3)", "norm", "epsilon of LayerNorm is 0.001 instead of 1e-05"),
        ("linen_nets.py:Images(approximate=True)", "norm", "its input, which the code before it computes"),
        ("equinox_nets.py:build_images(epsilon=1e-3)", "norm", "epsilon of LayerNorm is 0.001 instead of 1e-05"),
        ("nnx_nets.py:Images(momentum=0.99)", "bn", "0.01 instead of 0.1"),
    ],
)
def test_a_fault_in_jax(nets, net, module, said):
    judged = images(net, LIBRARIES[net.partition("(")[0]], accept=["running-variance"])
    assert not judged.agrees
    finding = next(each for each in judged.findings if module in each.modules)
    assert said in str(finding) and net.partition(":")[0] in " ".join(finding.places), str(judged)


@pytest.mark.slow
@pytest.mark.parametrize(
    "library, net",
    [("flax", "nnx_nets.py:Tokens"), ("flax", "linen_nets.py:Tokens"), ("equinox", "equinox_nets.py:Tokens")],
)
def test_layouts_of_jax(nets, library, net):
    pytest.importorskip(library)
    judged = compare("torch=torch_nets.py:Tokens", f"jax={net}", TOKENS)
    assert agree(judged) and not judged.matched.unused


@pytest.mark.slow
def test_modules_that_nnx_copies(nets):
    """nnx.jit calls copies of the modules; they report by the names of the originals, and without the compiler."""
    pytest.importorskip("flax")
    recorder, inputs = importlib.import_module("zoo.parity.recorders.jax"), {"x": np.ones((2, 8, 8, 3), np.float32)}
    calls = {}
    for name in ("Images", "Compiled"):
        model = recorder.Model(side.load(f"nnx_nets.py:{name}")(), "fp32", "cpu", False)
        model.prepare(inputs)
        probe = Probe(model.modules(), empty("jax", "fp32", {}), "evaluation")
        model.run(inputs, probe, None)
        calls[name] = [call.name for call in probe.calls]
    assert calls["Compiled"] == calls["Images"] == ["", "conv", "bn", "norm", "drop", "fc"]


@pytest.mark.slow
@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_a_type_of_a_module_of_flax(library):
    """A module that casts its inputs to fp32 computes in fp64 all the same: its result is no number of fp32."""
    flax = pytest.importorskip("flax")
    recorder, inputs = importlib.import_module("zoo.parity.recorders.jax"), {"inputs": np.array([[1 / 3, 0.1]])}
    recorder.set_precision("fp64")
    try:
        own = {"dtype": np.float32}
        net = flax.linen.Dense(3, **own) if library == "linen" else flax.nnx.Linear(2, 3, rngs=flax.nnx.Rngs(0), **own)
        model = recorder.Model(net, "fp64", "cpu", False)
        model.prepare(inputs)
        (output,) = model.run(inputs, None, None).outputs
    finally:
        recorder.set_precision("fp32")
    assert (output != output.astype(np.float32)).all()


@pytest.mark.slow
def test_a_function_in_jax(nets):
    pytest.importorskip("optax")
    optimizer = {"torch": "torch_nets.py:sgd", "jax": "jax_nets.py:sgd"}
    agree(compare("torch=torch_nets.py:Layers", "jax=jax_nets.py:build_layers", ROWS, optimizer=optimizer))
    agree(compare("torch=torch_nets.py:Layers", "jax:compile=jax_nets.py:build_layers", ROWS))
    optimizer["jax"] = "jax_nets.py:sgd(momentum=0.8)"
    judged = compare("torch=torch_nets.py:Layers", "jax=jax_nets.py:build_layers", ROWS, optimizer=optimizer)
    assert [(each.modules, "0.8 instead of 0.9" in each.cause) for each in judged.findings] == [(("optimizer",), True)]


@pytest.mark.slow
def test_numpy_beside_pytorch(nets):
    agree(compare("torch=torch_nets.py:Layers", "numpy=numpy_nets.py:build_layers", ROWS))
    agree(compare("numpy=numpy_nets.py:build_layers", "torch=torch_nets.py:Layers", ROWS))
    agree(compare("torch=torch_nets.py:softmax", "numpy=numpy_nets.py:build_softmax", ROWS))
    judged = compare("torch=torch_nets.py:Layers", "numpy=numpy_nets.py:build_without_bias", ROWS)
    assert [each.modules for each in judged.findings] == [("",)]


@pytest.fixture
def export(nets):
    """A function that exports a net of the file, by default so that its normalizations stay."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")

    def write(net, inputs, **options):
        options = {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE} | options
        torch.onnx.export(net.eval(), (inputs,), nets / "net.onnx", **options)
        return "onnx=net.onnx"

    return write


@pytest.fixture
def torch_nets(nets, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(nets)
    import torch_nets

    return torch_nets


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx_beside_pytorch(export, torch_nets):
    import torch

    images, tokens = torch.zeros(4, 3, 8, 8), torch.zeros(2, 7, dtype=torch.int64)
    judged = compare("torch=torch_nets.py:Images", export(torch_nets.Images(), images), IMAGES)
    assert agree(judged) and {each.event.name for each in judged.alone} == {"", "conv", "bn", "act", "norm", "fc"}
    net = torch_nets.Tokens()
    torch.backends.mha.set_fastpath_enabled(False)
    agree(compare("torch=torch_nets.py:Tokens", export(net, tokens), TOKENS))
    judged = compare("torch=torch_nets.py:Images", export(torch_nets.Images(epsilon=1e-3), images), IMAGES)
    assert [(each.modules, each.cause) for each in judged.findings] == [
        (("norm",), "epsilon of LayerNorm is 0.001 instead of 1e-05")
    ]
    judged = compare("torch=torch_nets.py:Images", export(torch_nets.Images(approximate="tanh"), images), IMAGES)
    assert [each.modules for each in judged.findings] == [("act",)] and "tanh" in judged.findings[0].cause
    options = {"training": torch.onnx.TrainingMode.EVAL}
    with pytest.raises(UserError, match="TrainingMode.PRESERVE"):
        compare("torch=torch_nets.py:Images", export(torch_nets.Images(), images, **options), IMAGES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_new_exporter(export, torch_nets):
    pytest.importorskip("onnxscript")
    import torch

    options = {"dynamo": True, "optimize": False, "training": torch.onnx.TrainingMode.EVAL}
    net = export(torch_nets.Images(), torch.zeros(4, 3, 8, 8), **options)
    agree(compare("torch=torch_nets.py:Images", net, IMAGES))


def test_onnx_nodes_that_pass_a_sequence(tmp_path):
    """As torch.chunk is exported."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        make.make_node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        make.make_node("SequenceAt", ["parts", "index"], ["y"]),
    ]
    constants = [onnx.numpy_helper.from_array(np.array(n), name) for name, n in (("sizes", [1, 2]), ("index", 1))]
    values = [make.make_tensor_value_info(name, kind, None) for name in "xy"]
    graph = make.make_graph(nodes, "split", values[:1], values[1:], constants)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9), tmp_path / "net.onnx")
    (tmp_path / "net.py").write_text("def build():\n    return lambda x: x[:, 1:]\n")
    parity.assert_same(
        {"numpy": f"{tmp_path / 'net.py'}:build", "onnx": str(tmp_path / "net.onnx")}, {"x": "float32:2,3"}
    )


class ConvTranspose:
    transpose_kernel = False


class DenseGeneral:
    axis = (-2, -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, shape, expected",
    [
        (ConvTranspose(), (3, 2, 2), lambda kernel: kernel[::-1].transpose(1, 2, 0)),  # width, in, out
        (DenseGeneral(), (2, 3, 4), lambda kernel: kernel.reshape(6, 4).T),  # heads, features of a head, out
    ],
)
def test_kernels_of_flax(module, shape, expected):
    """PyTorch's transposed convolution is the gradient of one: its kernel runs backwards."""
    pytest.importorskip("flax")
    kernel = np.arange(float(np.prod(shape))).reshape(shape)
    steps = importlib.import_module("zoo.parity.recorders.jax_flax").steps(module, "kernel", shape)
    assert np.array_equal(mapping.forward(steps, kernel), expected(kernel))
    assert np.array_equal(mapping.backward(steps, mapping.forward(steps, kernel)), kernel)


def test_steps_have_an_inverse():
    array = np.arange(24.0).reshape(2, 3, 4)
    steps = (("transpose", (2, 0, 1)), ("flip", (1,)), ("blocks", 0, (3, 1, 0, 2)), ("reshape", (4, 2, 3), (8, 3)))
    result = mapping.forward(steps, array)
    assert result.shape == (8, 3) and np.array_equal(result[0], array[1, :, 3])
    assert np.array_equal(mapping.backward(steps, result), array)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients_of_inputs_that_others_have_several_of(tmp_path, count):
    """That of one tensor for three inputs is the sum of the three; so it is judged only if there are as many."""
    archive = Archive(tmp_path)
    for name in ("in0", "in1", "in2", "din0", "din1", "din2"):
        archive.save(f"training/0/{name}", np.ones(3))
    record = empty("jax", "fp32", {})
    probe = Probe({"": None}, record, "training", None, Partner(archive, {("", 0): "training/0"}, {("", 0): ("", 0)}))
    token = probe.enter("", None, [np.ones(3)] * count).number
    probe.gradient(token, "in", 0, np.full(3, 3.0))
    probe.leave([])
    assert ("training/0/din0" in record.shapes) == (count == 3)


def test_axes_that_another_framework_merges(tmp_path):
    """An attention's heads may be an axis of their own."""
    archive, heads = Archive(tmp_path), np.arange(24.0).reshape(2, 3, 2, 2)
    archive.save("training/0/in0", heads.reshape(2, 3, 4) + 1)
    record, one = empty("jax", "fp32", {}), ("", 0)
    probe = Probe({"": None}, record, "training", None, Partner(archive, {one: "training/0"}, {one: one}, [one]))
    (value,) = probe.enter("", None, [heads]).values
    assert record.shapes["training/0/in0"] == (2, 3, 4) and np.array_equal(value, heads + 1)
