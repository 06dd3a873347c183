"""The ImageNet weights that DeepLabV3+ starts from, with small made-up files in place of the published ones."""

import hashlib
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from data.errors import UserError
from tests.zoo.weights.test_origins import listed
from tests.zoo.weights.test_segmentation import SMALL, as_mmseg, initial, small
from zoo.models.deeplabv3plus import spec
from zoo.weights import files, imagenet, layouts
from zoo.weights.match import match_state_dict


def backbone():
    """A small ResNet-18 with a deep stem by canonical names."""
    return {name[len("backbone.") :]: tensor for name, tensor in small().items() if name.startswith("backbone.")}


def as_vd(tensors):
    """Of a net of two convolutions per block, in PaddleSeg's names."""
    ending, found = {"running_mean": "_mean", "running_var": "_variance"}, {}
    for name, tensor in tensors.items():
        *path, part = name.split(".")
        norm = "_batch_norm" if path[-1].startswith("bn") or path[-2:] == ["downsample", "1"] else "_conv"
        if path[0].startswith("layer"):
            inner = "short" if path[2] == "downsample" else f"conv{int(path[2][-1]) - 1}"
            place = f"bb_{int(path[0][-1]) - 1}_{path[1]}.{inner}"
        else:
            place = f"conv1_{path[0][-1]}"
        found[f"{place}.{norm}.{ending.get(part, part)}"] = tensor
    return found


def packed(contents):
    """A .tar.gz with a folder and these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        folder = tarfile.TarInfo("resnet18")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def published(kind):
    """The bytes of a small file in place of what is published, and its name."""
    if kind == "vd":
        tensors = {**as_vd(backbone()), "out.weight": np.zeros((32, 1000), np.float32)}
        return packed({"resnet18/model.pdparams": pickle.dumps(tensors, 4)}), "resnet18_vd_ssld.tar.gz"
    state = {
        name[len("backbone.") :]: tensor for name, tensor in as_mmseg(small()).items() if name.startswith("backbone.")
    }
    buffer = io.BytesIO()
    torch.save({**state, "fc.weight": torch.zeros(1000, 32), "fc.bias": torch.zeros(1000)}, buffer)
    return buffer.getvalue(), f"resnet18_v1c-{hashlib.sha256(buffer.getvalue()).hexdigest()[:8]}.pth"


@pytest.fixture(params=["deep", "vd"])
def offer(request, tmp_path, monkeypatch):
    """(kind, content, name, folder) of ImageNet weights that no network gives."""
    content, name = published(request.param)
    monkeypatch.setitem(imagenet.FILES, request.param, {18: name})
    monkeypatch.setattr(imagenet, "download", lambda url, path: pytest.fail(f"fetched {url}"))
    (tmp_path / "weights").mkdir()
    return request.param, content, name, tmp_path / "weights"


def arch_of(kind):
    return spec.Arch(variant="paddleseg" if kind == "vd" else "mmseg", pretrained="imagenet", **SMALL)


def test_a_placed_file_fills_the_backbone(offer):
    kind, content, name, folder = offer
    (folder / name).write_bytes(content)
    assert imagenet.variant_of(arch_of(kind)) == kind
    said = []
    found, origin = initial(arch_of(kind), said, weights_dir=str(folder))
    ours, words = backbone(), {"deep": "open-mmlab resnet_v1c", "vd": "PaddleSeg resnet_vd_ssld"}[kind]
    assert all(np.array_equal(found[f"backbone.{key}"], tensor) for key, tensor in ours.items())
    assert found["head.image_pool.conv.weight"].std() > 0 and found["backbone.bn3.weight"].std() > 0
    assert said == [f"weights: {len(ours)} tensors from {origin.split(', ')[1]}, {len(found) - len(ours)} drawn anew"]
    assert origin.startswith(words)
    canonical = {"deep": "resnet18_v1c_imagenet.safetensors", "vd": "resnet18_vd_imagenet.safetensors"}[kind]
    assert sorted(os.listdir(folder)) == sorted([name, canonical])
    tensors, metadata = files.read(str(folder / canonical))
    assert tensors.keys() == ours.keys()
    assert metadata["sha256"] == hashlib.sha256(content).hexdigest() and metadata["url"].endswith(name)


def test_a_file_is_fetched(offer, monkeypatch):
    kind, content, name, folder = offer
    urls = []
    monkeypatch.setattr(imagenet, "download", lambda url, path: (urls.append(url), Path(path).write_bytes(content)))
    imagenet.find_weights(18, str(folder), kind)
    assert urls == [
        {
            "deep": "https://download.openmmlab.com/pretrain/third_party/",
            "vd": "https://bj.bcebos.com/paddleseg/dygraph/",
        }[kind]
        + name
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-6] + bytes(3) + content[-3:],
        lambda content: b"",
    ],
)
def test_a_damaged_file_is_named(offer, damage):
    kind, content, name, folder = offer
    (folder / name).write_bytes(damage(content))
    with pytest.raises(UserError, match=f"{name} is (damaged|no whole .tar.gz).*remove it and fetch it again"):
        imagenet.find_weights(18, str(folder), kind)
    assert os.listdir(folder) == [name]


@pytest.mark.parametrize(
    "contents, says",
    [
        ({"readme.txt": b"x"}, "holds 0 files"),
        ({"a.pdparams": b"", "b.pdparams": b""}, "holds 2 files"),
        ({"a.pdparams": b"x"}, "a.pdparams in .*a.tar.gz is not read"),
    ],
)
def test_archives_of_something_else(tmp_path, monkeypatch, contents, says):
    monkeypatch.setitem(imagenet.FILES, "vd", {18: "a.tar.gz"})
    (tmp_path / "a.tar.gz").write_bytes(packed(contents))
    with pytest.raises(UserError, match=says):
        imagenet.find_weights(18, str(tmp_path), "vd")
    assert os.listdir(tmp_path) == ["a.tar.gz"]


def test_a_plain_stem_takes_torchvisions_weights(tmp_path):
    tensors = {name: tensor for name, tensor in backbone().items() if not name.startswith(("conv", "bn"))}
    stem = {
        name[len("backbone.") :]: tensor
        for name, tensor in small(stem="plain").items()
        if name.startswith(("backbone.conv", "backbone.bn"))
    }
    files.write(
        str(tmp_path / "resnet18_imagenet.safetensors"),
        {**tensors, **stem, "fc.weight": np.zeros((1000, 32), np.float32)},
        {"origin": "a test"},
    )
    arch = spec.Arch(stem="plain", pretrained="imagenet", **SMALL)
    found, origin = initial(arch, weights_dir=str(tmp_path))
    assert origin.startswith("a test") and np.array_equal(found["backbone.conv1.weight"], stem["conv1.weight"])
    with pytest.raises(UserError, match="missing:\n    backbone.conv2.weight"):  # device_batch under another's name
        os.rename(tmp_path / "resnet18_imagenet.safetensors", tmp_path / "resnet18_v1c_imagenet.safetensors")
        initial(spec.Arch(pretrained="imagenet", **SMALL), weights_dir=str(tmp_path))


@pytest.mark.parametrize("kind, names_of", [("deep", "mmseg_r50"), ("vd", "paddleseg_r50vd")])
def test_names_of_full_backbones_map_completely(kind, names_of):
    origin = imagenet.SOURCES[kind].names
    shapes = {
        name[len("backbone.") :]: shape for name, shape in listed(names_of).items() if name.startswith("backbone.")
    }
    ours = layouts.to_canonical({name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}, origin)
    net = spec.shapes(spec.Arch(variant="paddleseg" if kind == "vd" else "mmseg", num_classes=19))
    report = match_state_dict(
        imagenet.add_backbone_prefix(ours, net), {name: shape for name, shape in net.items() if not spec.not_pretrained(name)}
    )
    assert report.complete, str(report)


def test_depths_that_nobody_published(tmp_path):
    with pytest.raises(UserError, match=r"this kind \(vd\) for ResNet-50, -101 alone"):
        imagenet.find_weights(18, str(tmp_path), imagenet.variant_of(spec.Arch(variant="paddleseg", depth=18)))
