"""Published ImageNet weights: download, hash and single conversion, with small files in place of the published ones."""

import hashlib
import io
import os
import pickle
import shutil
import tarfile

import numpy as np
import pytest
import torch

from tests.helpers.server import serving
from tests.zoo.weights.state_dicts import as_mmseg, as_vd, recorded_shapes, small_backbone, small_deeplab, small_resnet
from zoo.data.errors import UserError
from zoo.weights import files, imagenet, layouts, registry

HOSTS = {
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


def stand_in(monkeypatch, variant, *hosts):
    """Put a small file in place of the published one into the table; return its bytes and its entry."""
    content, name = published(variant)
    entry = next(iter(imagenet.published(variant).values()))
    entry = entry._replace(file=name, depth=depth_of(variant), hosts=hosts or entry.hosts, mib=None)
    monkeypatch.setattr(registry, "table", lambda: {entry.name: entry})
    return content, entry


@pytest.fixture(params=list(HOSTS))
def weights(request, tmp_path, monkeypatch):
    """(variant, content, entry, folder, server) of a published file."""
    with serving() as server:
        yield request.param, *stand_in(monkeypatch, request.param, server.url), tmp_path / "weights", server


def find(weights):
    variant, _, _, folder, _ = weights
    return imagenet.find_weights(depth_of(variant), str(folder), variant)


def listed(folder):
    return sorted(name for name in os.listdir(folder) if name != ".lock" and not name.endswith(".sha256"))


def test_hosts():
    assert all(entry.hosts[0] == HOSTS[name] for name in HOSTS for entry in imagenet.published(name).values())
    assert {name: [*imagenet.published(name)] for name in HOSTS} == {
        "plain": [18, 34, 50, 101, 152],
        "deep": [18, 50, 101],
        "vd": [50, 101],
        "mobilenet_v2": [None],
    }


def test_a_placed_file_is_converted_once(weights):
    variant, content, entry, folder, server = weights
    folder.mkdir()
    (folder / entry.file).write_bytes(content)
    assert imagenet.depths_at_hand(str(folder), variant) == [depth_of(variant)]
    path, description = find(weights)
    assert path == f"{folder}/{entry.name}/model.safetensors" and description == entry.title and not server.requests
    tensors, metadata = files.read(path)
    expected = small_resnet() if variant == "plain" else small_backbone()
    if variant == "mobilenet_v2":
        expected = layouts.to_canonical(mobilenet(), "torchvision")
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[key], expected[key]) for key in expected)
    assert metadata["sha256"] == hashlib.sha256(content).hexdigest() and metadata["url"] == server.url + entry.file
    (folder / entry.file).unlink()
    assert find(weights) == (path, description)
    assert imagenet.depths_at_hand(str(folder), variant) == [depth_of(variant)]


def test_a_file_is_downloaded(weights):
    _, content, entry, folder, server = weights
    server.files[entry.file] = content
    find(weights)
    find(weights)
    assert server.requests == [(entry.file, 0)] and listed(folder) == sorted([entry.file, entry.name])


def test_a_damaged_file_is_refused(weights):
    """A download with another hash is not kept; what has no digits to check shows its damage when it is read."""
    variant, _, entry, folder, server = weights
    server.files[entry.file] = b"truncated"
    with pytest.raises(UserError, match="complete .tar.gz" if variant == "vd" else "its SHA-256 begins with"):
        find(weights)
    assert listed(folder) == ([entry.file] if variant == "vd" else [])
    (folder / entry.file).write_bytes(b"placed")
    with pytest.raises(UserError, match=f"{entry.file} is .*; remove it, and download it again from {server.url}"):
        find(weights)
    assert listed(folder) == [entry.file]


def test_what_changes_after_its_first_use_is_refused(weights):
    """Also a file without published digits: its whole hash is recorded when it is got."""
    _, content, entry, folder, server = weights
    server.files[entry.file] = content
    path, _ = find(weights)
    digest = hashlib.sha256(content).hexdigest()
    assert (folder / f"{entry.file}.sha256").read_text() == f"{digest}  {entry.file}\n"
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    with pytest.raises(UserError, match="model.safetensors is damaged: its SHA-256 is .*recorded beside it"):
        files.read(path)
    shutil.rmtree(os.path.dirname(path))
    other = content + bytes(1)
    (folder / entry.file).write_bytes(other)
    is_named = "-" in entry.file
    problem = f"begins with .*, not with {digest[:8]}" if is_named else f"and was {digest[:12]}... at first"
    with pytest.raises(UserError, match=f"{problem}; remove it and {folder}/{entry.file}.sha256, and download"):
        find(weights)


def test_a_failed_download_names_the_file_to_place(weights):
    _, _, entry, folder, server = weights
    with pytest.raises(UserError) as caught:
        find(weights)
    for part in (server.url + entry.file, str(folder / entry.file)):
        assert part in str(caught.value)
    assert listed(folder) == []
