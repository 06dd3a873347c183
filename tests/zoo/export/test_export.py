"""tools/export.py: what it writes is what the framework computes, and what differs is refused."""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers import frameworks
from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.zoo.export import checkpoints
from zoo.config import loader
from zoo.data.formats import masks
from zoo.export import assembly, low_precision
from zoo.notebook import Run
from zoo.weights.onnx_file import OnnxMetadata

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from zoo.models.onnx_graph import Graph  # noqa: E402 -- needs onnx


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    return checkpoints.make_data(str(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def checkpoint(roots, tmp_path_factory):
    """model -> the folder of its checkpoint, made when first asked for."""
    made = {}

    def find(model):
        if model not in made:
            made[model] = checkpoints.make(tmp_path_factory.mktemp(model) / "run", model, roots)
        return made[model]

    return find


def run(*words):
    return call_zoo("export", *map(str, words), "--device", "cpu")


def read(path):
    """Return session and metadata of a file."""
    properties = {each.key: each.value for each in onnx.load(path).metadata_props}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session, OnnxMetadata.from_properties(properties, str(path))


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.export.export_cases"))
def test_export(framework, module, case):
    frameworks.check(framework, module, case)


def test_the_file_of_a_tsm_describes_itself(checkpoint, roots, tmp_path, capsys):
    weights, out = checkpoint("tsm"), tmp_path / "tsm.onnx"
    assert run(weights, "--out", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "torch and the fp32 graph in ONNX Runtime, logits, largest |graph - framework| / largest |framework|"
    )
    assert [line.split()[0] for line in lines[2:6]] == ["1", "5", "1", "5"]
    assert [line.endswith("frames reversed") for line in lines[2:6]] == [False, False, True, True]
    assert (
        lines[6].startswith(f"{out}: ")
        and ", fp32, opset 18" in lines[6]
        and lines[6].endswith("input NTCHW float32, output logits")
    )
    session, metadata = read(out)
    assert (metadata.model, metadata.task, metadata.protocol) == ("tsm", "classify", "motion/4x1x1@32")
    assert (metadata.classes[0], len(metadata.classes), metadata.palette, metadata.states) == ("left", 8, (), ())
    assert (metadata.arch["segments"], metadata.arch["num_classes"], metadata.arch["width"]) == (4, 8, 8)
    assert metadata.record["step"] == checkpoints.STEP and metadata.weights.name == weights
    assert metadata.preprocessing["short_side"] == 36 and metadata.preprocessing["eval_crops"] == 1
    entries = loader.parse_recorded(metadata.record["recipe"], "record")
    assert entries["model.name"].value == "tsm" and entries["data.root"].value == roots["tsm"]
    (value,) = session.get_inputs()
    assert (value.name, value.type, value.shape) == ("input", "tensor(float)", ["batch", 4, 3, 32, 32])
    (value,) = session.get_outputs()
    assert (value.name, value.type, value.shape) == ("output", "tensor(float)", ["batch", 8])
    assert metadata.input.normalized and metadata.input.layout == "NTCHW"
    assert metadata.max_difference <= 1e-5


def test_an_image_classifier_with_preprocessing_gives_probabilities(checkpoint, tmp_path):
    """Of uint8 pixels, channels last: those of the other file for pixels normalized by its metadata."""
    outputs = {}
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    for name, words in (("plain", []), ("whole", ["--with-preprocessing"])):
        assert run(checkpoint("resnet50"), "--out", tmp_path / f"{name}.onnx", *words) == 0
        session, metadata = read(tmp_path / f"{name}.onnx")
        x = pixels
        if metadata.input.normalized:
            x = ((pixels / 255 - metadata.input.mean) / metadata.input.std).transpose(0, 3, 1, 2).astype(np.float32)
        outputs[name] = session.run(None, {metadata.input.name: x})[0]
    assert (metadata.input.dtype, metadata.input.layout, metadata.output.kind) == ("uint8", "NHWC", "probabilities")
    powers = np.exp(outputs["plain"].astype(np.float64))
    np.testing.assert_allclose(outputs["whole"], powers / powers.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("model", ["resnet50", "arcface"])
def test_opencv_4_reads_files_of_images_and_faces(checkpoint, tmp_path, model):
    """Measured with 4.11: 4e-6; OpenCV 5 reads all."""
    cv2 = pytest.importorskip("cv2")
    path = str(tmp_path / "model.onnx")
    assert run(checkpoint(model), "--out", path) == 0
    session, metadata = read(path)
    sizes = [2 if isinstance(size, str) else size for size in session.get_inputs()[0].shape]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    net, expected = cv2.dnn.readNetFromONNX(path), session.run(None, {metadata.input.name: x})[0]
    net.setInput(x)
    assert np.abs(net.forward() - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_segmentation_model_takes_any_size(checkpoint, tmp_path):
    assert run(checkpoint("deeplabv3plus"), "--out", tmp_path / "plain.onnx") == 0
    assert run(checkpoint("deeplabv3plus"), "--out", tmp_path / "whole.onnx", "--with-preprocessing") == 0
    (plain, metadata), (whole, end) = read(tmp_path / "plain.onnx"), read(tmp_path / "whole.onnx")
    assert np.array_equal(metadata.palette, masks.class_colors(metadata.classes))
    assert end.output.kind == "class_map" and whole.get_outputs()[0].type == "tensor(uint8)"
    pixels = np.random.default_rng(0).integers(0, 256, (2, 37, 50, 3), np.uint8)
    x = ((pixels / 255 - metadata.input.mean) / metadata.input.std).transpose(0, 3, 1, 2).astype(np.float32)
    logits = plain.run(None, {"input": x})[0]
    assert logits.shape == (2, len(metadata.classes), 37, 50)
    differs = whole.run(None, {"input": pixels})[0] != logits.argmax(1)
    assert differs.mean() < 1e-3  # ties within rounding


def test_samples_of_files_replace_the_data(checkpoint, roots, tmp_path):
    clips = os.path.join(roots["tsm"], "val")
    words = ["-o", "data.root=nowhere", "--samples", clips]
    assert run(checkpoint("tsm"), "--out", tmp_path / "a.onnx", *words) == 0
    assert read(tmp_path / "a.onnx")[1].protocol == ""
    scenes = os.path.join(roots["deeplabv3plus"], "leftImg8bit", "val")
    assert run(checkpoint("deeplabv3plus"), "--out", tmp_path / "b.onnx", "--samples", scenes) == 0
    assert run(checkpoint("arcface"), "--out", tmp_path / "c.onnx", "--samples", roots["arcface"]) == 0


@pytest.mark.parametrize(
    "words, message",
    [
        (["--samples", "nothing.png"], "--samples nothing.png: no such file"),
        (["--out", "a.pt"], "must end in .onnx"),
        (["--out", "nowhere/a.onnx"], "no such folder"),
        (["-o", "model.depth=20"], "model.depth"),
        (["-o", "data.root=."], "or give other ones with --samples FILE"),
        (["--precision", "int8", "--samples", ".", "-o", "data.root=."], "is not a demo set"),
    ],
)
def test_wrong_arguments(checkpoint, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert run("model.onnx", "--out", "a.onnx") == 2
    assert "model.onnx is an exported model; give the checkpoint" in capsys.readouterr().err
    assert run(checkpoint("resnet50"), "--out", "a.onnx", *words) == 2
    assert message in capsys.readouterr().err and os.listdir(tmp_path) == []


ORDER = """
import sys
from zoo import cli
names = ("onnx", "google.protobuf")
import zoo.export.proof
zoo.export.proof.load_trainer = lambda read: sys.exit(f"imported: {[name for name in names if name in sys.modules]}")
cli.main(["export", *sys.argv[1:]])
"""


def test_the_framework_is_imported_before_onnx(checkpoint, tmp_path):
    """MindSpore, which needs another implementation of protocol buffers than onnx takes, fails after it."""
    command = [sys.executable, "-c", ORDER, checkpoint("tsm"), "--out", str(tmp_path / "a.onnx")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert result.stderr == "imported: []\n"


def plant_shift(monkeypatch):
    """The temporal shift goes the other way."""
    module = importlib.import_module("zoo.models.tsm.onnx")
    real = module.temporal_shift
    monkeypatch.setattr(
        module, "temporal_shift", lambda graph, x, segments, div=8, direction="": real(graph, x, segments, div, "past")
    )


def plant_epsilon(monkeypatch):
    real = Graph.batch_norm
    monkeypatch.setattr(Graph, "batch_norm", lambda graph, name, x, eps=1e-5: real(graph, name, x, 1e-3))


def plant_batch_statistics(monkeypatch):
    """Batch normalization as in training."""

    def batch_norm(graph, name, x, eps=1e-5):
        layer, axes = graph.scope(name), (0, *range(2, len(graph.shape(x))))
        shape = (-1, *[1] * (len(axes) - 1))
        centered = graph.node("Sub", x, graph.mean(x, *axes, keepdim=True))
        variance = graph.mean(graph.node("Mul", centered, centered), *axes, keepdim=True)
        deviation = graph.node("Sqrt", graph.add(variance, graph.constant(np.float32(eps))))
        scaled = graph.node("Mul", graph.node("Div", centered, deviation), layer.weight("weight", shape))
        return graph.node("Add", scaled, layer.weight("bias", shape), name=name)

    monkeypatch.setattr(Graph, "batch_norm", batch_norm)


def plant_corners(monkeypatch):
    real = Graph.resize_like
    monkeypatch.setattr(Graph, "resize_like", lambda graph, x, other, aligned: real(graph, x, other, not aligned))


def plant_slopes(monkeypatch):
    monkeypatch.setattr(Graph, "prelu", lambda graph, name, x: graph.relu(x))


@pytest.mark.parametrize(
    "model, plant, hint",
    [
        ("tsm", plant_shift, ("the input of layer1.0.conv1 differs first", "Pad")),
        ("resnet50", plant_epsilon, ("the output of bn1 differs first", "BatchNormalization")),
        ("resnet50", plant_batch_statistics, ("the input of bn1 differs first", "Div")),
        ("deeplabv3plus", plant_corners, ("the input of", "Resize")),
        ("arcface", plant_slopes, ("the input of layer1.0.bn1 differs first", "Relu")),
    ],
    ids=["direction", "epsilon", "training mode", "corners", "slopes"],
)
def test_a_planted_fault_is_refused(checkpoint, tmp_path, capsys, monkeypatch, model, plant, hint):
    plant(monkeypatch)
    assert run(checkpoint(model), "--out", tmp_path / "a.onnx") == 1
    output, errors = capsys.readouterr()
    assert "difference" in output and os.listdir(tmp_path) == []
    assert "the graph differs from torch by" in errors and "nothing is written" in errors
    assert all(part in errors for part in hint)


@pytest.mark.parametrize("model, end", [("resnet50", "probabilities"), ("deeplabv3plus", "class map")])
def test_a_wrong_normalization_is_refused(checkpoint, tmp_path, capsys, monkeypatch, model, end):
    """By the logits, because the classes of a model that has learned little hardly depend on it."""
    real = assembly.normalize
    monkeypatch.setattr(
        assembly, "normalize", lambda graph, pixels, field: real(graph, pixels, replace(field, mean=(0.5,) * 3))
    )
    assert run(checkpoint(model), "--out", tmp_path / "a.onnx", "--with-preprocessing") == 1
    output, error = capsys.readouterr()
    assert "nothing is written. all layers of the model agree; look at what --with-preprocessing adds" in error
    assert "logits" in output and end not in output


def test_clips_that_stand_still_prove_nothing(checkpoint, tmp_path, capsys):
    import av

    with av.open(str(tmp_path / "still.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for _ in range(12):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 90, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert run(checkpoint("tsm"), "--out", tmp_path / "a.onnx", "--samples", tmp_path / "still.mp4") == 2
    assert "cannot prove that the graph looks at the order of frames" in capsys.readouterr().err


@pytest.mark.slow
def test_fp16_has_half_the_size_and_a_stated_difference(checkpoint, tmp_path, capsys):
    sizes = {}
    for precision in ("fp32", "fp16"):
        out = tmp_path / f"{precision}.onnx"
        assert run(checkpoint("deeplabv3plus"), "--out", out, "--precision", precision, "--with-preprocessing") == 0
        sizes[precision] = out.stat().st_size
    session, metadata = read(tmp_path / "fp16.onnx")
    assert metadata.precision == "fp16" and 0 <= metadata.max_difference <= 1e-2
    assert session.get_outputs()[0].type == "tensor(uint8)"
    types = {each.data_type for each in onnx.load(tmp_path / "fp16.onnx").graph.initializer if "weight" in each.name}
    assert types == {onnx.TensorProto.FLOAT16} and sizes["fp16"] < 0.75 * sizes["fp32"]
    assert "torch and the fp16 graph in ONNX Runtime" in capsys.readouterr().out
    onnx.checker.check_model(str(tmp_path / "fp16.onnx"), full_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["deeplabv3plus", "arcface"])
def test_int8_prints_the_metric_before_and_after(checkpoint, tmp_path, capsys, monkeypatch, model):
    """Drawn weights have the metric of chance, which may change: here by anything."""
    monkeypatch.setattr(low_precision, "MAX_LOSS", 1.0)
    assert run(checkpoint(model), "--out", tmp_path / "a.onnx", "--precision", "int8") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "validation split" in line)
    match = re.fullmatch(r"(\w+) over \d+ samples of the validation split: (\S+) in fp32, (\S+) in int8", line)
    assert match[1] == {"deeplabv3plus": "miou", "arcface": "accuracy"}[model]
    graph = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(graph, full_check=True)
    assert [(each.domain, each.version) for each in graph.opset_import] == [("", 18)]
    assert {node.domain for node in graph.graph.node} == {""}
    producers = {node.output[0]: node for node in graph.graph.node}
    convolutions = [node for node in graph.graph.node if node.op_type == "Conv"]
    weights = [producers[node.input[1]] for node in convolutions]
    assert {node.op_type for node in weights} == {"DequantizeLinear"}  # int8, by channel and symmetric
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in graph.graph.initializer}
    for node in weights:
        quantized, scale, zero = (stored[name] for name in node.input)
        assert quantized.dtype == np.int8 and scale.shape == quantized.shape[:1] and not zero.any()
    monkeypatch.chdir(tmp_path)  # a run writes below the current folder
    metrics = Run(None, weights=str(tmp_path / "a.onnx"), device="cpu").evaluate()
    assert f"{metrics[match[1]]:.4f}" == match[3]


@pytest.fixture(scope="module")
def causal(roots, tmp_path_factory):
    """The folder of the checkpoint of a causal TSM."""
    return checkpoints.make(tmp_path_factory.mktemp("causal") / "run", "tsm", roots, model__shift_direction="causal")


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--precision", "fp16")])
def test_the_frames_of_a_stream(causal, tmp_path, capsys, words):
    """Frame by frame, a stream gives what the graph of whole clips gives for clips that end with the frame."""
    assert run(causal, "--out", tmp_path / "stream.onnx", "--stream", *words) == 0
    assert "frame by frame" in capsys.readouterr().out
    session, metadata = read(tmp_path / "stream.onnx")
    assert [value.name for value in session.get_inputs()] == ["input", *(state.input for state in metadata.states)]
    assert [value.name for value in session.get_outputs()] == ["output", *(state.output for state in metadata.states)]
    for state, value in zip(metadata.states, session.get_inputs()[1:]):
        assert (value.shape, value.type) == (["batch", *state.shape[1:]], "tensor(float)") and state.shape[0] == 1
    if words:
        return
    assert run(causal, "--out", tmp_path / "clip.onnx") == 0
    clip = np.random.default_rng(0).standard_normal((1, 4, 3, 32, 32), np.float32)
    expected = read(tmp_path / "clip.onnx")[0].run(None, {"input": clip})[0]
    states, outputs = [np.zeros(state.shape, np.float32) for state in metadata.states], []
    for t in range(4):
        feeds = {state.input: array for state, array in zip(metadata.states, states)}
        output, *states = session.run(None, {"input": clip[:, t], **feeds})
        outputs.append(output)
    np.testing.assert_allclose(np.mean(outputs, 0), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(outputs[0] - outputs[3]).max() > 0.01


def test_a_stream_with_a_wrong_state_is_refused(causal, tmp_path, capsys, monkeypatch):
    module = importlib.import_module("zoo.models.tsm.onnx")
    real = module.shift_frame

    def shift_frame(graph, x, previous, div):
        shifted, _ = real(graph, x, previous, div)
        return shifted, graph.slice(shifted, {1: (0, graph.size(x, 1) // div)})  # of the shifted frame

    monkeypatch.setattr(module, "shift_frame", shift_frame)
    assert run(causal, "--out", tmp_path / "a.onnx", "--stream") == 1
    assert "nothing is written. look at build_frame of zoo/models/tsm/onnx.py" in capsys.readouterr().err


def test_the_program_of_the_documentation_runs(checkpoint, tmp_path, capsys, monkeypatch):
    assert run(checkpoint("resnet50"), "--out", tmp_path / "resnet50.onnx") == 0
    text = (ROOT / "docs/predicting.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "onnxruntime" in block)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "") and len(result.stdout.split(",")) == 2
