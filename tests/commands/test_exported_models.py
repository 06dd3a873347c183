"""Exported models in place of checkpoints: the same predictions, metrics and results, for every task."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.exported import export, with_input
from tests.helpers.paths import ROOT
from tests.helpers.predicting import by_name, read_results, run_predict, train
from tests.helpers.processes import SETTINGS
from zoo.data.errors import UserError
from zoo.weights import files
from zoo.weights.onnx_file import State

MODELS = ("tsm", "resnet50", "deeplabv3plus", "arcface")
MORE = {"arcface": {"model.depth": 18}, "deeplabv3plus": {"data.base_size": "[40, 56]"}}
FILES = {"tsm": "val/*/*.mp4", "resnet50": "val/*/*", "deeplabv3plus": "leftImg8bit/val/*/*", "arcface": "unseen/*/*"}


@pytest.fixture(scope="module", params=MODELS)
def pair(request, demo_sets, tmp_path_factory):
    """Model, checkpoint, exported file, and two files of the validation set."""
    name = request.param
    folder, root = tmp_path_factory.mktemp(name), Path(demo_sets[name])
    settings = {**SETTINGS[name], **MORE.get(name, {}), "data.root": root}
    checkpoint = train(folder, f"{name}_demo.yaml", settings, 3)
    path = export(checkpoint, folder / "model.onnx")
    return name, checkpoint, path, [str(file) for file in sorted(root.glob(FILES[name]))[:2]]


def numbers(row):
    """Return the numbers of a row of predictions.jsonl."""
    ranked = row.get("predictions") or row.get("shares")
    return np.array([list(each.values())[1] for each in ranked] if ranked else row["embedding"])


def test_predictions_are_those_of_the_checkpoint(pair, tmp_path, capsys):
    name, checkpoint, path, inputs = pair
    code, expected, lines, _ = run_predict(capsys, tmp_path / "a", *inputs, "--weights", checkpoint)
    assert code == 0
    code, found, other_lines, errors = run_predict(capsys, tmp_path / "b", *inputs, "--weights", path)
    assert (code, errors) == (0, "")
    assert (found["framework"], found["precision"], found["weights"]) == ("onnx", "fp32", path)
    assert {key: found[key] for key in ("model", "task", "step", "classes")} == {
        key: expected[key] for key in ("model", "task", "step", "classes")
    }
    assert len(lines) == len(other_lines) >= 2
    for one, other in zip(expected["files"], found["files"]):
        np.testing.assert_allclose(numbers(other), numbers(one), rtol=1e-4, atol=1e-6)
        if name == "deeplabv3plus":
            maps = [np.asarray(Image.open(row["written"]["labels"])) for row in (one, other)]
            assert np.array_equal(*maps)


@pytest.mark.slow
def test_metrics_are_those_of_the_checkpoint(pair):
    """The recipe, the classes and the settings are those of the file; -o changes them as for a checkpoint."""
    name, checkpoint, path, _ = pair
    changes = {"deeplabv3plus": {"task.flip": True, "task.window": [32, 40]}, "tsm": {"data.eval_sampling": "twice"}}
    for overrides in ({}, changes.get(name, {"train.eval_batch": 5})):
        expected, found = (
            zoo.Run(None, {"data.workers": 0, **overrides}, weights=weights).evaluate()
            for weights in (checkpoint, path)
        )
        counts = {"accuracy", "top1", "top5", "miou", "macc", "aacc", "iou", "unseen", "unseen_tar", "samples"}
        assert expected.keys() == found.keys() and len(counts & found.keys()) >= 3
        assert {key: found[key] for key in counts & found.keys()} == {
            key: expected[key] for key in counts & found.keys()
        }
        for key in found.keys() - counts - {"seconds"}:
            assert found[key] == pytest.approx(expected[key], rel=1e-5), key


def test_results_in_a_program(pair, tmp_path, capsys):
    """zoo.load(...).predict gives the numbers of tools/predict.py, of files and of the arrays in them."""
    _, checkpoint, path, inputs = pair
    _, record, _, _ = run_predict(capsys, tmp_path / "out", *inputs, "--weights", checkpoint)
    arrays = [decode(file) for file in inputs]
    for weights in (checkpoint, path):
        model = zoo.load(weights, device="cpu")
        found = [*model.predict(inputs), *model.predict(arrays), model.predict(Path(inputs[0]))]
        for result, row in zip(found, record["files"] * 2 + record["files"][:1], strict=True):
            compare(result, row, model.class_names)
    assert type(model.model).__name__ == "InferenceSession"


def decode(file):
    if file.endswith(".mp4"):
        from zoo.predict.overlay import read_video

        return np.stack([frame for frame, _ in read_video(file)])
    return np.asarray(Image.open(file).convert("RGB"))


def compare(result, row, class_names):
    """Compare a result with a row of predictions.jsonl."""
    if isinstance(result, zoo.Classification):
        assert list(result.labels[:5]) == list(by_name(row)) and sorted(result.labels) == sorted(class_names)
        np.testing.assert_allclose(result.probabilities[:5], list(by_name(row).values()), rtol=1e-4, atol=1e-6)
    elif isinstance(result, zoo.Segmentation):
        labels = np.asarray(Image.open(row["written"]["labels"]))
        assert result.class_map.dtype == np.uint8 and np.array_equal(result.class_map, labels)
        assert result.class_names == class_names
    else:
        np.testing.assert_allclose(result.embedding, row["embedding"], rtol=1e-4, atol=1e-6)
        assert np.linalg.norm(result.embedding) == pytest.approx(1)
        assert result.length == pytest.approx(row["length"], rel=1e-5)


def test_graphs_that_normalize_and_complete_their_output(pair, tmp_path, capsys):
    """Probabilities are as good as logits; class maps and unit vectors are, where nothing is averaged or added."""
    name, checkpoint, _, inputs = pair
    whole = export(checkpoint, tmp_path / "whole.onnx", whole=True)
    changes = {"arcface": ["-o", "task.flip=false"], "deeplabv3plus": ["-o", "data.base_size=null"]}.get(name, [])
    _, expected, _, _ = run_predict(capsys, tmp_path / "a", *inputs, "--weights", checkpoint, *changes)
    code, found, _, _ = run_predict(capsys, tmp_path / "b", *inputs, "--weights", whole, *changes)
    assert code == 0
    for one, other in zip(expected["files"], found["files"]):
        np.testing.assert_allclose(numbers(other), numbers(one), rtol=1e-4, atol=1e-6)
    refusals = {
        "deeplabv3plus": (["task.flip=true"], "gives class maps, which can be neither averaged"),
        "arcface": (["task.flip=true"], "gives embeddings of length 1"),
    }
    override, message = refusals.get(name, (["data.mean=[0.5,0.5,0.5]"], "was exported for pixels normalized by mean"))
    words = [word for each in override for word in ("-o", each)]
    assert call_zoo("predict", *inputs, "--weights", whole, "--out", str(tmp_path / "c"), *words) == 2
    assert message in capsys.readouterr().err
    settings = {"arcface": {"task.flip": False}, "deeplabv3plus": {"data.base_size": None}}.get(name, {})
    model = zoo.load(whole, overrides=settings, device="cpu")
    for result, row in zip(model.predict(inputs), expected["files"], strict=True):
        compare(result, {**row, "length": 1.0}, model.class_names)  # of a face: the graph's own has no other


@pytest.mark.slow
def test_without_a_framework(image_model, tmp_path):
    """predict.py and train.py need neither torch, paddle, mindspore nor the package onnx."""
    checkpoint, root = image_model
    path = export(checkpoint, tmp_path / "model.onnx")
    blocked = ("torch", "paddle", "mindspore", "onnx")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"  # an import of None is an error
        "from zoo.cli import main\n"
        f"code = main(['predict', {str(root / 'val')!r}, '--weights', {path!r}, '--out', 'out'])\n"
        f"sys.exit(code or main(['train', '--eval-only', '--weights', {path!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "computing in fp32 with onnx on cpu" in done.stdout and "evaluation: top1" in done.stdout
    assert len(read_results(tmp_path / "out")["files"]) == 8


USES = [
    (["--weights", "{path}"], "is an exported model, which can only predict: evaluate it with --eval-only"),
    (["--eval-only", "--weights", "{path}", "--framework", "torch"], "--framework: {path} is computed by ONNX Runtime"),
    (["--eval-only", "--weights", "{path}", "--amp"], "--amp: {path} is computed by ONNX Runtime, in the precision"),
    (["--eval-only", "--weights", "{path}", "--resume", "{run}"], "--resume: evaluates the last checkpoint of {run}"),
    (
        ["--eval-only", "--weights", "{path}", "-c", "configs/tsm_demo.yaml"],
        "{path} holds the model resnet, this recipe trains tsm: give a recipe of resnet with -c, or none",
    ),
    (
        ["--eval-only", "--weights", "{path}", "-o", "model.width=16"],
        "is for model.width=4, and these settings give 16",
    ),
    (["--eval-only", "--weights", "{path}", "-o", "data.eval_size=24"], "takes arrays of any x 16 x 16 x 3"),
    (["--eval-only", "--weights", "{path}", "--device", "cuda"], "there is no cuda:0 here (cuda devices that ONNX"),
    (["--eval-only", "--weights", "{path}", "--device", "npu"], "device: expected auto, cpu, cuda, cuda:N, tensorrt"),
    (["--eval-only", "--weights", "nowhere.onnx"], "nowhere.onnx: no such file"),
]


@pytest.mark.parametrize("words, message", USES)
def test_other_uses_are_refused(image_model, words, message, tmp_path_factory, monkeypatch, capsys):
    folder = tmp_path_factory.mktemp("uses")
    names = {"path": export(image_model[0], folder / "model.onnx"), "run": str(Path(image_model[0]).parents[1])}
    words = [word.format(**names) for word in words]
    words = [str(ROOT / word) if word.startswith("configs/") else word for word in words]
    monkeypatch.chdir(folder)
    assert call_zoo("train", *words, "-o", "data.workers=0") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message.format(**names) in error and error.count("\n") == 1
    assert os.listdir(folder) == ["model.onnx"]


def with_two_classes(metadata):
    record = {**metadata.record, "classes": ["a", "b"]}
    return replace(metadata, record=record, classes=("a", "b"), arch={**metadata.arch, "num_classes": 2})


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda m: with_input(m, name="pixels"),
            "its metadata and its graph do not agree: inputs pixels against input",
        ),
        (lambda m: with_input(m, layout="NHWC", dtype="uint8", normalized=False), "do not agree: uint8 NHWC against"),
        (lambda m: replace(m, arch={**m.arch, "depth": 34}), "is for model.depth=34"),
        (lambda m: replace(m, record={**m.record, "recipe": "a: [1"}), "lacks a valid recipe"),
        (lambda m: replace(m, states=(State("a", "next_a", (1, 3)),)), "do not agree: inputs input, a against input"),
        (with_two_classes, "its output has the shape (8, 8) instead of (8, 2)"),
    ],
)
def test_files_that_are_not_what_they_say(image_model, change, message, tmp_path, capsys):
    path = export(image_model[0], tmp_path / "model.onnx", change=change)
    words = [str(image_model[1] / "val"), "--weights", path, "--out", str(tmp_path / "out")]
    assert call_zoo("predict", *words) == 2
    assert message in capsys.readouterr().err


def test_a_graph_that_onnx_runtime_refuses(image_model, tmp_path, capfd):
    path = Path(export(image_model[0], tmp_path / "model.onnx"))
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Gemm").op_type = "Pow"
    onnx.save(model, path)
    assert call_zoo("predict", str(image_model[1] / "val"), "--weights", str(path), "--out", str(tmp_path / "out")) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "ONNX Runtime cannot load this graph" in err


def test_an_exported_model_is_no_checkpoint(image_model, tmp_path, monkeypatch):
    """It is refused wherever weights are read, also by programs that check less."""
    path = export(image_model[0], tmp_path / "model.onnx")
    with pytest.raises(UserError, match="is an exported model, whose weights are part of its graph"):
        files.read(path)
    with pytest.raises(UserError, match="whose weights are part of its graph"):
        zoo.numpy_weights("resnet50", pretrained=path, width=8)
    with pytest.raises(UserError, match="raw=True: .* has one kind of weights"):
        zoo.load(path, raw=True)
    with pytest.raises(UserError, match="is computed by ONNX Runtime"):
        zoo.load(path, "torch")


def test_inputs_of_a_program_that_are_none(image_model, tmp_path):
    checkpoint, root = image_model
    model = zoo.load(export(checkpoint, tmp_path / "model.onnx"))
    assert model.predict([]) == []
    image = np.zeros((30, 40, 3), np.uint8)
    for wrong, message in (
        (image.astype(np.float32), r"uint8 \(H, W, 3\), RGB, got float32 \(30, 40, 3\); give \(255 \* image\).round"),
        (image[..., 0], r"got uint8 \(30, 40\)"),
        (image[None], "give several as a list"),
        (image[:0], r"got uint8 \(0, 40, 3\)"),
        (3, "expected paths, images of Pillow or arrays uint8"),
        (
            Image.fromarray(image[..., 0].astype(np.float32)),
            "an image of Pillow .*mode F, .* write 8 bits",
        ),
        (str(tmp_path), "nothing in this folder ends in .jpeg"),
        (str(root / "none.png"), "none.png: no such file"),
        ("", "expected a path, got an empty one"),
    ):
        with pytest.raises(UserError, match=message):
            model.predict(wrong)
