"""Weights of other projects compute here what they compute there: logits recorded from their own nets."""

import functools
import json
import pickle
import zlib

import numpy as np
import pytest
import torch

from data.errors import UserError
from tests.helpers.paths import GOLDEN
from tools import convert
from zoo.models.resnet import spec as resnet
from zoo.models.resnet import torch as resnet_torch
from zoo.models.tsm import spec as tsm
from zoo.models.tsm import torch as tsm_torch
from zoo.weights import files, layouts, names, shift_direction
from zoo.weights.match import match_state_dict

CLASSES, SIDE, TOLERANCE = 7, 64, 1e-5
LISTS = {  # list of names -> origin, depth
    "torchvision": ("torchvision", 50),
    "torchvision_resnet18": ("torchvision", 18),
    "paddle_vision_resnet50": ("paddle_vision", 50),
    "paddle_vision_resnet18": ("paddle_vision", 18),
    "paddleclas_resnet50": ("paddleclas", 50),
    "paddlevideo_resnet50": ("paddlevideo", 50),
    "mindspore_resnet50": ("mindspore", 50),
    "mindspore_resnet18": ("mindspore", 18),
    "mindcv_resnet50": ("mindcv", 50),
    "mindcv_resnet18": ("mindcv", 18),
}


def listed(which):
    """Name -> shape as another project's state dict has them."""
    rows = [line.split() for line in (GOLDEN / f"names_{which}.txt").read_text().splitlines() if line[0] != "#"]
    return {name: () if shape == "scalar" else tuple(map(int, shape.split("x"))) for name, shape in rows}


def drawn(name, shape):
    """A weight from its project's own name and shape alone, so that a confused name shows in the logits."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith(("running_var", "variance")) or (len(shape) == 1 and name.endswith(("weight", "gamma"))):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    fan_in = np.prod(shape[1:]) if len(shape) == 4 else max(shape)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(fan_in**-0.5)


@functools.lru_cache(maxsize=1)
def theirs(which):
    return {name: drawn(name, shape) if shape else np.zeros((), np.int64) for name, shape in listed(which).items()}


def images(*shape):
    return torch.from_numpy(np.random.default_rng(2015).standard_normal((*shape, 3, SIDE, SIDE), dtype=np.float32))


def logits(net, tensors, inputs):
    """Of a net with canonical tensors, which must fill it exactly."""
    state = {name: tensor for name, tensor in net.state_dict().items() if not name.endswith(names.COUNTER)}
    report = match_state_dict(tensors, {name: tuple(tensor.shape) for name, tensor in state.items()})
    assert report.complete, str(report)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(torch.from_numpy(np.array(tensors[name])))
        return net.eval()(inputs).numpy()


def image_logits(depth, tensors):
    return logits(resnet_torch.Model(resnet.Arch(depth, CLASSES)), tensors, images(2))


def relative(ours, recorded):
    return np.abs(ours - recorded).max() / np.abs(recorded).max()


@pytest.fixture(autouse=True)
def one_thread():
    """Images this small lose more than they win by a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "resnets.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("which, expected", LISTS.items())
def test_names_map_completely(which, expected):
    origin, depth = expected
    shapes = listed(which)
    arrays = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    assert names.detect(arrays) == origin
    report = match_state_dict(layouts.to_canonical(arrays, origin), resnet.shapes(resnet.Arch(depth, CLASSES)))
    assert report.complete, str(report)


@pytest.mark.parametrize(
    "which", ["torchvision_resnet18", "paddle_vision_resnet50", "paddleclas_resnet50", "mindspore_resnet18"]
)
def test_same_logits(which, golden):
    origin, depth = LISTS[which]
    ours = image_logits(depth, layouts.to_canonical(theirs(which), origin))
    assert relative(ours, golden[which]) <= TOLERANCE


def test_other_padding_gives_similar_logits(golden):
    """Which is what the note of the conversion says, and why nothing closer can be asked."""
    ours = image_logits(18, layouts.to_canonical(theirs("mindcv_resnet18"), "mindcv"))
    assert 1e-3 < relative(ours, golden["mindcv_resnet18"]) < 0.3


def test_a_file_of_paddle_vision(tmp_path, capsys, golden):
    """As users have it: a .pdparams in, a canonical file out, the same logits."""
    content = {**theirs("paddle_vision_resnet18"), "StructuredToParameterName@@": {"conv1.weight": "conv2d_0.w_0"}}
    (tmp_path / "in.pdparams").write_bytes(pickle.dumps(content, protocol=4))
    assert convert.main([str(tmp_path / "in.pdparams"), str(tmp_path / "out.safetensors")]) == 0
    output = capsys.readouterr().out
    assert "paddle_vision's names; resnet with depth 18, num_classes 7, width 64" in output and "note" not in output
    tensors, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert metadata["origin"] == "paddle_vision" and metadata["model"] == "resnet"
    assert relative(image_logits(18, tensors), golden["paddle_vision_resnet18"]) <= TOLERANCE


@pytest.mark.parametrize("frames, keep", [(8, False), (4, True)])
def test_a_tsm_of_paddlevideo(frames, keep, golden):
    tensors = layouts.to_canonical(theirs("paddlevideo_resnet50"), "paddlevideo")
    tensors, remarks = convert.turn(tensors, 50, None if frames == 8 else frames, keep)
    arch = tsm.Arch(50, CLASSES, segments=frames, shift_div=frames, shift_direction="past" if keep else "future")
    ours = logits(tsm_torch.Model(arch), tensors, images(2, frames))
    assert relative(ours, golden[f"paddlevideo_{frames}_frames"]) <= TOLERANCE
    assert ("model.shift_direction=past" in remarks[0]) == keep
    assert (remarks[1:] == ["give -o model.shift_div=4 to the net"]) == (frames == 4)


def test_the_recorded_logits_differ(golden):
    keys = [key for key in golden if golden[key].shape == (2, CLASSES)]
    assert len(keys) == len(golden) == 8
    different = [relative(golden[one], golden[other]) for i, one in enumerate(keys) for other in keys[:i]]
    assert min(different) > 1e-2


@pytest.mark.parametrize(
    "old, origin, blocks, new",
    [
        ("blocks.0.conv0.conv.weight", "paddleclas", 16, "layer1.0.conv1.weight"),
        ("blocks.3.short.bn._mean", "paddleclas", 16, "layer2.0.downsample.1.running_mean"),
        ("blocks.13.conv2.bn._variance", "paddleclas", 16, "layer4.0.bn3.running_var"),
        ("blocks.29.conv1.conv.weight", "paddleclas", 33, "layer3.22.conv2.weight"),
        ("blocks.49.conv1.bn.bias", "paddleclas", 50, "layer4.2.bn2.bias"),
        ("blocks.2.conv1.bn.bias", "paddleclas", 8, "layer2.0.bn2.bias"),
        ("backbone.res2c.conv0._conv.weight", "paddlevideo", 0, "layer1.2.conv1.weight"),
        ("backbone.res4a.short._batch_norm._mean", "paddlevideo", 0, "layer3.0.downsample.1.running_mean"),
        ("backbone.res4b1.conv2._conv.weight", "paddlevideo", 0, "layer3.1.conv3.weight"),
        ("backbone.res4b22.conv1._batch_norm.bias", "paddlevideo", 0, "layer3.22.bn2.bias"),
        ("head.fc.weight", "paddlevideo", 0, "fc.weight"),
        ("layer3.1.bn2d.gamma", "mindspore", 0, "layer3.1.bn2.weight"),
        ("layer3.0.down_sample_layer.1.moving_variance", "mindspore", 0, "layer3.0.downsample.1.running_var"),
        ("end_point.bias", "mindspore", 0, "fc.bias"),
        ("layer3.0.down_sample.1.beta", "mindcv", 0, "layer3.0.downsample.1.bias"),
    ],
)
def test_single_names(old, origin, blocks, new):
    assert names.canonical_name(old, origin, blocks) == new


def small(classes=3, width=2, depth=18):
    rng = np.random.default_rng(5)
    return {
        name: rng.uniform(0.1, 1, shape).astype(np.float32)
        for name, shape in resnet.shapes(resnet.Arch(depth, classes, width)).items()
    }


def as_paddle(tensors):
    ending = {"running_mean": "_mean", "running_var": "_variance"}
    return {
        ".".join(ending.get(part, part) for part in name.split(".")): tensor.T if name == "fc.weight" else tensor
        for name, tensor in tensors.items()
    }


def test_a_square_classifier_is_transposed_too():
    """16 features and 16 classes: its shape says nothing."""
    tensors = small(classes=16)
    ours = layouts.to_canonical(as_paddle(tensors), "paddle_vision")
    assert all(np.array_equal(ours[name], tensors[name]) for name in tensors) and ours.keys() == tensors.keys()


def test_there_and_back_to_paddle(tmp_path):
    tensors = small()
    files.write(str(tmp_path / "ours.safetensors"), tensors)
    there, back = str(tmp_path / "paddle.safetensors"), str(tmp_path / "back.safetensors")
    assert convert.main([str(tmp_path / "ours.safetensors"), there, "--to", "paddle"]) == 0
    written, _ = files.read(there)
    assert {name: array.shape for name, array in written.items()} == {
        name: array.shape for name, array in as_paddle(tensors).items()
    }
    assert convert.main([there, back]) == 0
    read, _ = files.read(back)
    assert read.keys() == tensors.keys() and all(np.array_equal(read[name], tensors[name]) for name in tensors)


def test_to_paddle_refuses_non_local_blocks():
    with pytest.raises(UserError, match="non-local"):
        layouts.to_paddle({"layer2.0.nl.g.weight": np.zeros(1, np.float32)})


def as_mindspore(tensors, classifier="end_point", shortcut="down_sample_layer"):
    """Of a net of two convolutions per block."""
    ending = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    found = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        if resnet.is_norm(name):
            part = ending[part]
        if classifier == "end_point" and name.startswith("layer") and "downsample" not in name:
            module = module.replace("bn1", "bn1d").replace("bn2", "bn2d")
        module = module.replace("downsample", shortcut).replace("fc", classifier)
        found[f"{module}.{part}"] = tensor
    return found


def test_the_state_of_a_training_run_is_left_out():
    tensors = as_mindspore(small())
    state = {
        **{f"moments.{name}": array for name, array in tensors.items() if "moving" not in name},
        **{name: np.zeros((), np.float32) for name in ("learning_rate", "momentum", "global_step", "epoch_num")},
    }
    assert names.detect({**state, **tensors}) == "mindspore"
    assert layouts.to_canonical({**state, **tensors}, "mindspore").keys() == small().keys()


@pytest.mark.parametrize("basic", [True, False])
def test_another_epsilon_is_moved_into_the_variance(basic):
    """(x - mean) / sqrt(variance + 1e-4) there is (x - mean) / sqrt(variance' + 1e-5) here, where theirs is larger."""
    variance = np.float32([1e-6, 0.5, 3])
    inner = "layer1.0.bn1d" if basic else "layer1.0.bn1"
    ours = layouts.to_canonical({"bn1.moving_variance": variance, f"{inner}.moving_variance": variance}, "mindspore")
    assert np.allclose(ours["layer1.0.bn1.running_var"] + 1e-5, variance + 1e-4, rtol=1e-6)
    assert np.array_equal(ours["bn1.running_var"], variance) == basic
    same = layouts.to_canonical({"bn1.moving_variance": variance}, "mindcv")
    assert np.array_equal(same["bn1.running_var"], variance)


@pytest.mark.parametrize("more, classes", [((), 1000), (("-o", "num_classes=1001"), 1001)])
def test_the_spare_class_of_mindspore(tmp_path, capsys, more, classes):
    tensors = small(classes=1001)
    files.write(str(tmp_path / "in.safetensors"), as_mindspore(tensors))
    assert convert.main([str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors"), *more]) == 0
    assert ("note: the last of 1001 classes" in capsys.readouterr().out) == (classes == 1000)
    ours, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert np.array_equal(ours["fc.weight"], tensors["fc.weight"][:classes]) and metadata["model"] == "resnet"
    assert np.array_equal(ours["fc.bias"], tensors["fc.bias"][:classes])


def test_the_notes_on_padding(tmp_path, capsys):
    files.write(str(tmp_path / "in.safetensors"), as_mindspore(small(), "classifier", "down_sample"))
    assert convert.main([str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")]) == 0
    assert "note: mindcv pads" in capsys.readouterr().out
    assert not layouts.notes("mindspore", bottleneck=False) and "0.09" in layouts.notes("mindspore", bottleneck=True)[0]


def as_paddlevideo(tensors, prefixes=("backbone.", "head.")):
    """Of a net of three convolutions per block, with at most seven blocks in a stage."""
    found = {}
    for name, tensor in as_paddle(tensors).items():
        parts = name.split(".")
        if parts[0] == "fc":
            found[prefixes[1] + name] = tensor
            continue
        block = [f"res{int(parts[0][5]) + 1}{'abcdefg'[int(parts[1])]}"] if parts[0].startswith("layer") else []
        inner = parts[2:-1] if block else parts[:-1]
        kind = "_batch_norm" if inner[0].startswith("bn") or inner == ["downsample", "1"] else "_conv"
        short = "short" if inner[0] == "downsample" else f"conv{int(inner[0][-1]) - 1}" if block else "conv"
        found[prefixes[0] + ".".join([*block, short, kind, parts[-1]])] = tensor
    return found


def test_a_file_of_paddlevideo(tmp_path, capsys):
    tensors = small(depth=50, width=16)
    source = str(tmp_path / "in.safetensors")
    files.write(source, as_paddlevideo(tensors))
    outputs = {}
    for key, more in {"turned": (), "div": ("--shift-div", "16"), "kept": ("--keep-direction",)}.items():
        assert convert.main([source, str(tmp_path / f"{key}.safetensors"), *more]) == 0
        outputs[key] = (*files.read(str(tmp_path / f"{key}.safetensors")), capsys.readouterr().out)
    for key, expected in {
        "turned": shift_direction.reverse_shift(tensors, 8),
        "div": shift_direction.reverse_shift(tensors, 16),
        "kept": tensors,
    }.items():
        ours, metadata, text = outputs[key]
        assert all(np.array_equal(ours[name], expected[name]) for name in tensors)
        assert metadata["model"] == "tsm" and json.loads(metadata["arch"])["shift_direction"] == (
            "past" if key == "kept" else "future"
        )
        assert ("model.shift_div=16" in text) == (key == "div") and "note: PaddleVideo's shift" in text


def test_imagenet_weights_of_paddlevideo_stay_in_order(tmp_path, capsys):
    tensors = small(depth=50)
    files.write(str(tmp_path / "in.safetensors"), as_paddlevideo(tensors, prefixes=("", "")))
    assert convert.main([str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")]) == 0
    ours, metadata = files.read(str(tmp_path / "out.safetensors"))
    assert metadata["model"] == "resnet" and np.array_equal(ours["fc.weight"], tensors["fc.weight"])
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "origin, more, says",
    [
        ("paddlevideo", ("--shift-div", "0"), "--shift-div 0"),
        ("paddlevideo", ("--shift-div", "10"), "differ in size"),
        ("paddle_vision", ("--shift-div", "8"), "a resnet of paddle_vision"),
        ("paddle_vision", ("--keep-direction",), "a resnet of paddle_vision"),
    ],
)
def test_refused_options(tmp_path, capsys, origin, more, says):
    tensors = small(depth=50, width=16)
    files.write(str(tmp_path / "in.safetensors"), (as_paddlevideo if origin == "paddlevideo" else as_paddle)(tensors))
    assert convert.main([str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors"), *more]) == 2
    assert says in capsys.readouterr().err and not (tmp_path / "out.safetensors").exists()


def test_deep_nets_of_paddlevideo_come_with_a_warning():
    assert "every second one" in convert.turn(small(depth=101, width=8), 101, None, False)[1][-1]
