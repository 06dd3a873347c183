"""The command zoo convert: what matches is converted, everything else is refused and leaves no file."""

import argparse
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import zoo
from tests.helpers.conversions import assert_equal, converted, refused, run, source
from tests.zoo.weights.state_dicts import (
    as_mindspore,
    as_paddle,
    as_paddlevideo,
    recorded_shapes,
    small_resnet,
)
from zoo.weights import files, layouts, origins
from zoo.weights.files import sha256


def state_dict():
    """Return a state dict in torchvision's names, of a ResNet-18 with 2 channels in the stem."""
    tensors = layouts.to_torchvision(small_resnet())
    return {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}


def test_a_checkpoint_of_mit(tmp_path, capsys):
    state, wrapped = state_dict(), {}
    for name, tensor in state.items():
        name = re.sub(r"^(layer.*)\.conv1\.", r"\1.conv1.net.", name)
        wrapped["module." + (f"new_{name}" if name.startswith("fc.") else f"base_model.{name}")] = tensor
    torch.save({"epoch": 50, "arch": "resnet18", "state_dict": wrapped, "optimizer": {}}, tmp_path / "mit.pth.tar")
    assert run(tmp_path / "mit.pth.tar", tmp_path / "out.safetensors", "-o", "num_classes=3") == 0
    tensors, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert metadata["origin"] == "mit" and metadata["sha256"] == sha256(str(tmp_path / "mit.pth.tar"))
    assert "names of mit; tsm with depth 18, num_classes 3, width 2" in capsys.readouterr().out
    assert_equal(tensors, small_resnet())


@pytest.mark.parametrize("origin, antialias", [("mit", True), ("mmaction2", False), ("paddlevideo", True)])
def test_the_resize_filter_of_the_origin_is_recorded_and_kept(tmp_path, capsys, origin, antialias):
    source = small_resnet(depth=50, width=16)
    tensors = as_paddlevideo(source) if origin == "paddlevideo" else source
    _, metadata = converted(tmp_path, tensors, "--model", "tsm", "--origin", origin)
    assert json.loads(metadata["data"]) == {"antialias": antialias}
    library, value = ("Pillow", "true") if antialias else ("OpenCV", "false")
    assert f"{origin} trains on frames resized by {library}: the recipe should have data.antialias={value}" in (
        capsys.readouterr().out
    )
    assert run(tmp_path / "out.safetensors", tmp_path / "copy.safetensors", "--model", "tsm") == 0
    assert files.read(str(tmp_path / "copy.safetensors"))[1]["data"] == metadata["data"]


@pytest.mark.parametrize("target", ["back.pth", "back.safetensors"])
def test_there_and_back_to_torchvision(tmp_path, target):
    state = state_dict()
    torch.save(state, tmp_path / "torchvision.pth")
    assert run(tmp_path / "torchvision.pth", tmp_path / "canonical.safetensors") == 0
    assert run(tmp_path / "canonical.safetensors", tmp_path / target, "--to", "torchvision") == 0
    assert_equal(files.read(str(tmp_path / target))[0], {name: tensor.numpy() for name, tensor in state.items()})


def test_there_and_back_to_paddle(tmp_path, capsys):
    tensors = small_resnet()
    written, _ = converted(tmp_path, tensors, "--to", "paddle")
    shapes = {name: array.shape for name, array in as_paddle(tensors).items()}
    assert {name: array.shape for name, array in written.items()} == shapes
    capsys.readouterr()
    assert run(tmp_path / "out.safetensors", tmp_path / "back.safetensors") == 0
    output = capsys.readouterr().out
    assert "names of paddle_vision; resnet with depth 18, num_classes 3, width 2" in output and "note" not in output
    restored, metadata = files.read(str(tmp_path / "back.safetensors"))
    assert metadata["origin"] == "paddle_vision" and metadata["model"] == "resnet"
    assert_equal(restored, tensors)


def test_a_file_of_paddle(tmp_path):
    assert run(source(tmp_path, small_resnet()), tmp_path / "new/out.pdparams", "--to", "paddle") == 0
    tensors, _ = files.read(str(tmp_path / "new/out.pdparams"))
    assert_equal(tensors, as_paddle(small_resnet()))
    assert run(tmp_path / "new/out.pdparams", tmp_path / "back.safetensors") == 0
    assert_equal(files.read(str(tmp_path / "back.safetensors"))[0], small_resnet())


@pytest.mark.slow
def test_paddle_loads_it(tmp_path):
    tensors = zoo.numpy_weights("resnet18", num_classes=7)
    assert run(source(tmp_path, tensors), tmp_path / "a.pdparams", "--to", "paddle") == 0
    code = (
        "import paddle, sys; model = paddle.vision.models.resnet18(num_classes=7); state = paddle.load(sys.argv[1]); "
        "assert model.set_state_dict(state) == ([], []); fc = model.fc.weight.numpy(); print(fc.shape, float(fc.sum()))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.pdparams"], capture_output=True, text=True)
    assert done.stdout == f"(512, 7) {float(tensors['fc.weight'].T.copy().sum())}\n", done.stderr


@pytest.mark.parametrize("flags, classes", [((), 1000), (("-o", "num_classes=1001"), 1001)])
def test_the_spare_class_of_mindspore(tmp_path, capsys, flags, classes):
    source = small_resnet(classes=1001)
    tensors, metadata = converted(tmp_path, as_mindspore(source), *flags)
    assert ("note: the last of 1001 classes" in capsys.readouterr().out) == (classes == 1000)
    assert metadata["model"] == "resnet"
    assert np.array_equal(tensors["fc.weight"], source["fc.weight"][:classes])
    assert np.array_equal(tensors["fc.bias"], source["fc.bias"][:classes])


def test_mindcv_s_padding_is_stored(tmp_path, capsys):
    _, metadata = converted(tmp_path, as_mindspore(small_resnet(), "classifier", "down_sample"))
    assert json.loads(metadata["arch"])["padding"] == "same_pool"
    resized, note = json.loads(metadata["notes"])
    assert resized.endswith("resized by OpenCV: the recipe should have data.antialias=false and data.reduce=false")
    assert json.loads(metadata["data"]) == {"antialias": False, "reduce": False}
    assert "model.padding=same_pool gives the same function" in note
    assert f"note: {note}\n" in capsys.readouterr().out


def test_mindspore_s_padding_and_epsilon_are_stored(tmp_path):
    """And kept by a conversion of the converted file, which moves the epsilon into the variances if asked to."""
    source = small_resnet(depth=50)
    tensors, metadata = converted(tmp_path, as_mindspore(source))
    arch = json.loads(metadata["arch"])
    assert (arch["padding"], arch["bn_eps"]) == ("same", 1e-4)
    assert "model.padding=same and model.bn_eps=0.0001 gives" in json.loads(metadata["notes"])[-1]
    assert_equal(tensors, source)
    assert run(tmp_path / "out.safetensors", tmp_path / "moved.safetensors", "-o", "bn_eps=1e-5") == 0
    moved, again = files.read(str(tmp_path / "moved.safetensors"))
    arch = json.loads(again["arch"])
    assert (again["model"], arch["padding"], arch["bn_eps"]) == ("resnet", "same", 1e-5)
    variances = {name for name in source if name.endswith("running_var")}
    for name in source:
        expected = source[name] + np.float32(1e-4 - 1e-5) if name in variances else source[name]
        assert np.array_equal(moved[name], expected)


@pytest.mark.parametrize(
    "file, shift_place, temporal_pool",
    [
        ("mit_blockres", "blockres", False),
        ("mit_block", "block", False),
        ("mit_nonlocal_tpool", "blockres", True),
        ("mmaction2_block", "block", False),
        ("mmaction2_nonlocal", "blockres", False),
        ("mmaction2_tpool", "blockres", True),
    ],
)
def test_the_wrappers_of_a_tsm_tell_its_options(file, shift_place, temporal_pool):
    names = recorded_shapes(f"names_{file}")
    options = origins.architecture("tsm", file.partition("_")[0], names, 50, {})
    assert options == {"shift_place": shift_place, "temporal_pool": temporal_pool}
    bare = [name.replace(".net", "") for name in names]
    assert origins.architecture("tsm", "mit", bare, 50, {})["shift_place"] == "none"  # TSN
    assert origins.architecture("tsm", "mit", list(small_resnet()), 50, {}) == {}


VIDEO = {"non_local": True, "shift_place": "blockres"}


@pytest.mark.parametrize(
    "origin, options, parts",
    [
        ("mit", {"temporal_pool": True}, ["NOT EQUAL: with non-local blocks and temporal pooling", "partial_bn"]),
        ("mit", {"temporal_pool": False}, ["upstream leaves them out of its optimizer"]),
        ("mit", {"non_local": False}, []),
        ("mit", {"non_local": False, "shift_place": "none"}, ["model.shift_place=none is stored"]),
        ("mmaction2", {"temporal_pool": True}, ["NOT EQUAL: with non-local", "dot-product"]),
        ("paddlevideo", {}, []),
    ],
)
def test_limits_of_video_models(origin, options, parts):
    found = origins.notes("tsm", origin, {**VIDEO, **options}, {}, True, "canonical")
    assert len(found) == len(parts)
    assert all(part in note for part, note in zip(parts, found))


@pytest.mark.parametrize(
    "model, origin, options, data",
    [
        ("deeplabv3plus", "paddleseg", {}, {"mean": [0.5] * 3, "std": [0.5] * 3}),
        ("deeplabv3plus", "mmseg", {}, {}),
        ("arcface", "plsc", {"variant": "plsc"}, {"normalisation": "plsc"}),
        ("arcface", "plsc", {"variant": "insightface"}, {"normalisation": "insightface"}),
        ("arcface", "insightface", {"variant": "insightface"}, {"normalisation": "insightface"}),
        ("resnet", "torchvision", {}, {"antialias": True}),
        ("resnet", "paddleclas", {}, {"antialias": False, "reduce": False}),
        ("resnet", "mit", {}, {}),
    ],
)
def test_the_preprocessing_of_the_origin(model, origin, options, data):
    assert origins.data_settings(model, origin, options) == data


@pytest.mark.parametrize(
    "flags, shift_div, direction",
    [((), 8, "future"), (("--shift-div", "16"), 16, "future"), (("--keep-direction",), 8, "past")],
)
def test_a_tsm_of_paddlevideo(tmp_path, capsys, flags, shift_div, direction):
    source = small_resnet(depth=50, width=16)
    tensors, metadata = converted(tmp_path, as_paddlevideo(source), *flags)
    assert_equal(tensors, source if direction == "past" else layouts.reverse_shift(source, shift_div))
    arch = json.loads(metadata["arch"])
    assert (metadata["model"], arch["shift_direction"], arch["shift_div"]) == ("tsm", direction, shift_div)
    output = capsys.readouterr().out
    assert ("model.shift_div=16" in output) == (shift_div == 16) and "note: PaddleVideo's shift" in output


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"layer2.1.bn1.running_var": None}, "missing keys (1):\n    layer2.1.bn1.running_var"),
        ({"aux.weight": torch.zeros(2)}, "unexpected keys (1):\n    aux.weight"),
        ({"layer1.0.conv1.weight": torch.zeros(2, 2, 1, 1)}, "(2, 2, 1, 1), the model expects (2, 2, 3, 3)"),
        ({"fc.bias": torch.zeros(3, dtype=torch.int64)}, "fc.bias is int64"),
        ({"fc.bias": torch.zeros(3, dtype=torch.float64)}, "fc.bias is float64"),
        ({name: None for name in small_resnet() if "layer4.1" in name}, "(2, 2, 2, 1) blocks"),
    ],
)
def test_a_model_that_differs_is_refused(tmp_path, capsys, change, reason):
    tensors = {name: tensor for name, tensor in {**state_dict(), **change}.items() if tensor is not None}
    assert reason in refused(capsys, tmp_path, tensors)


@pytest.mark.parametrize(
    "prefix",
    [
        "module.",
        "backbone.",
        "module.net.",
        "_orig_mod.",
        "module._orig_mod.",
        "_fsdp_wrapped_module.",
        "model.encoder.",
    ],
)
@pytest.mark.parametrize("key", ["state_dict", "model", "net"])
def test_wrappers_of_a_model_are_left_out_and_named(prefix, key, tmp_path, capsys):
    """As DataParallel, torch.compile, Lightning and torchvision's references save it, arguments beside."""
    wrapped = {prefix + name: tensor for name, tensor in state_dict().items()}
    content = {key: wrapped, "epoch": 90, "args": argparse.Namespace(lr=0.1), "optimizer": {"state": {}}}
    torch.save(content, tmp_path / "in.ckpt")  # Lightning's extension, too
    assert run(tmp_path / "in.ckpt", tmp_path / "out.safetensors") == 0
    tensors, _ = files.read(str(tmp_path / "out.safetensors"))
    assert_equal(tensors, small_resnet())
    printed = capsys.readouterr().out
    assert "left out of the names: " in printed and "names of torchvision; resnet with" in printed
    assert all(part in printed for part in prefix.split("."))


def test_a_part_that_is_wrapped_and_averages_of_weights(tmp_path, capsys):
    """By torch.compile or checkpointing, and swa_utils' AveragedModel."""
    wrapped = {name.replace("layer1.0.", "layer1.0._orig_mod."): tensor for name, tensor in state_dict().items()}
    wrapped = {f"module.{name}": tensor for name, tensor in wrapped.items()}
    other = {name: tensor + 1 for name, tensor in state_dict().items()}
    content = {"model": {"n_averaged": torch.tensor(3), **wrapped}, "model_ema": other, "epoch": 90}
    torch.save(content, tmp_path / "in.pth")
    assert run(tmp_path / "in.pth", tmp_path / "out.safetensors") == 0
    tensors, _ = files.read(str(tmp_path / "out.safetensors"))
    assert_equal(tensors, small_resnet())
    printed = capsys.readouterr().out
    assert "left out of the names: module., n_averaged, _orig_mod" in printed
    assert "note: the file holds other weights too (model_ema), which are not converted" in printed
