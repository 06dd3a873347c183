"""Published ImageNet weights: download, hash and single conversion, with small files in place of the published ones."""

import hashlib
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.zoo.weights.state_dicts import as_mmseg, as_vd, recorded_shapes, small_backbone, small_deeplab, small_resnet
from zoo.data.errors import UserError
from zoo.weights import files, imagenet, layouts

CANONICAL = {
    "plain": "resnet18_imagenet.safetensors",
    "deep": "resnet18_v1c_imagenet.safetensors",
    "vd": "resnet18_vd_imagenet.safetensors",
    "mobilenet_v2": "mobilenet_v2_imagenet.safetensors",
}
URLS = {
    "plain": "https://download.pytorch.org/models/",
    "deep": "https://download.openmmlab.com/pretrain/third_party/",
    "vd": "https://bj.bcebos.com/paddleseg/dygraph/",
    "mobilenet_v2": "https://download.pytorch.org/models/",
}


def archive_of(contents):
    """Return a .tar.gz with a folder and these files."""
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


def saved(state_dict):
    """Return the bytes of a file of PyTorch, and the digits of its hash in published names."""
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    return buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest()[:8]


def mobilenet():
    """Return small tensors by torchvision's names of MobileNetV2."""
    shapes = recorded_shapes("names_torchvision_mobilenet_v2")
    return {name: np.full(shape[:1], index, np.float32) for index, (name, shape) in enumerate(shapes.items())}


def depth_of(variant):
    return None if variant == "mobilenet_v2" else 18


def published(variant):
    """Return the bytes and the name of a small file in place of a published one."""
    if variant == "vd":
        tensors = {**as_vd(small_backbone()), "out.weight": np.zeros((32, 1000), np.float32)}
        return archive_of({"resnet18/model.pdparams": pickle.dumps(tensors, 4)}), "resnet18_vd_ssld.tar.gz"
    if variant == "plain":
        tensors = layouts.to_torchvision(small_resnet())
        content, digits = saved({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()})
        return content, f"resnet18-{digits}.pth"
    if variant == "mobilenet_v2":
        content, digits = saved({name: torch.from_numpy(array) for name, array in mobilenet().items()})
        return content, f"mobilenet_v2-{digits}.pth"
    prefix = "backbone."
    state = {name[len(prefix) :]: array for name, array in as_mmseg(small_deeplab()).items() if name.startswith(prefix)}
    content, digits = saved({**state, "fc.weight": torch.zeros(1000, 32), "fc.bias": torch.zeros(1000)})
    return content, f"resnet18_v1c-{digits}.pth"


@pytest.fixture(params=list(CANONICAL))
def weights(request, tmp_path, monkeypatch):
    """(variant, content, name, folder) of a published file; a download fails the test."""
    content, name = published(request.param)
    monkeypatch.setitem(imagenet.FILES, request.param, {depth_of(request.param): name})
    monkeypatch.setattr(imagenet, "download", lambda url, path: pytest.fail(f"downloaded {url}"))
    (tmp_path / "weights").mkdir()
    return request.param, content, name, tmp_path / "weights"


def find(weights):
    variant, _, _, folder = weights
    return imagenet.find_weights(depth_of(variant), str(folder), variant)


def test_a_placed_file_is_converted_once(weights):
    variant, content, name, folder = weights
    (folder / name).write_bytes(content)
    path, description = find(weights)
    assert path == str(folder / CANONICAL[variant]) and description == imagenet.SOURCES[variant].description
    tensors, metadata = files.read(path)
    expected = small_resnet() if variant == "plain" else small_backbone()
    if variant == "mobilenet_v2":
        expected = layouts.to_canonical(mobilenet(), "torchvision")
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[key], expected[key]) for key in expected)
    digest = hashlib.sha256(content).hexdigest()
    assert metadata == {"origin": description, "file": name, "sha256": digest, "url": URLS[variant] + name}
    (folder / name).unlink()
    assert find(weights) == (path, description)


def test_a_file_is_downloaded(weights, monkeypatch):
    variant, content, name, folder = weights
    urls = []
    monkeypatch.setattr(imagenet, "download", lambda url, path: (urls.append(url), Path(path).write_bytes(content)))
    find(weights)
    assert urls == [URLS[variant] + name]
    assert sorted(os.listdir(folder)) == sorted([name, CANONICAL[variant]])


def test_a_damaged_download_is_not_kept(weights, monkeypatch):
    variant, _, name, folder = weights
    monkeypatch.setattr(imagenet, "download", lambda url, path: Path(path).write_bytes(b"truncated"))
    with pytest.raises(UserError, match="complete .tar.gz" if variant == "vd" else "SHA-256"):
        find(weights)
    assert os.listdir(folder) == ([name] if variant == "vd" else [])  # the name of an archive has no digits to check


def test_a_failed_download_names_the_file_to_place(weights, monkeypatch):
    variant, _, name, folder = weights

    def unreachable(url, path):
        raise OSError("no route to host")

    monkeypatch.setattr(imagenet, "download", unreachable)
    with pytest.raises(UserError) as caught:
        find(weights)
    for part in (URLS[variant] + name, str(folder / name), "-o model.pretrained=null"):
        assert part in str(caught.value)
    assert os.listdir(folder) == []
