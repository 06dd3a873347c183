"""Manifests: every column comes back, equal ones have equal bytes, damaged ones are refused."""

import os
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from zoo.data.errors import UserError
from zoo.data.packs import manifest
from zoo.data.packs.manifest import Info, Manifest


def example(count=3):
    columns = {
        name: np.arange(count * int(np.prod(shape)) if shape else count).reshape(count, *shape).astype(dtype)
        for name, (dtype, shape) in manifest.COLUMNS.items()
    }
    columns |= {"shard": np.zeros(count, np.int32), "first_record": np.arange(count), "records": np.ones(count, int)}
    info = Info("k400", "video", "pack", "/data/k400", ("a", "b"), {"train": (0, 2), "val": (2, 3)}, ("h264",),
                ("a.rec",), "terms")  # fmt: skip
    paths = [b"train/a/1.mp4", b"", "val/\xe9.mp4".encode("latin1")][:count]
    return Manifest(info, columns, paths, [], np.arange(count) * 100)


def write(folder, content):
    with open(os.path.join(folder, manifest.NAME), "wb") as file:
        file.write(content)


def test_a_manifest_is_read_again(tmp_path):
    assert not manifest.is_prepared(tmp_path)
    write(tmp_path, manifest.encode(example()))
    assert manifest.is_prepared(tmp_path)
    stored, wanted = manifest.read(tmp_path), example()
    assert stored.info == wanted.info and stored.paths == wanted.paths and len(stored) == 3
    for name, column in wanted.columns.items():
        np.testing.assert_array_equal(stored.columns[name], column)
    assert stored.record[1:3].tolist() == [100, 200]


def test_equal_manifests_have_equal_bytes():
    assert {manifest.encode(example()) for _ in range(5)} == {manifest.encode(example())}


def test_an_empty_manifest(tmp_path):
    empty = replace(example(0), info=replace(example().info, splits={"train": (0, 0)}))
    write(tmp_path, manifest.encode(empty))
    assert len(manifest.read(tmp_path)) == 0


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(label=np.zeros(2, np.int64)), "label is int64 (2,) for 3 samples"),
        (lambda c: c.update(size=np.zeros((3, 2), np.int64)), "size is int64"),
        (lambda c: c.update(first_record=np.array([0, 1, 3])), "records lie outside"),
        (lambda c: c.update(shard=np.array([0, 1, 0], np.int32)), "a sample lies in an unknown pack"),
        (lambda c: c.update(path_end=np.array([13, 13, 99])), "its paths are cut off"),
        (lambda c: c.update(path_end=np.array([13, 5, 20])), "its paths are damaged"),
        (lambda c: c.pop("record"), "record"),
    ],
)
def test_contradictions_are_refused(tmp_path, change, message):
    write(tmp_path, manifest.encode(example()))
    path = os.path.join(tmp_path, manifest.NAME)
    tensors = load_file(path)
    change(tensors)
    metadata = manifest.encode(example())
    start = metadata.index(b'{"__metadata__":{"manifest":"') + len(b'{"__metadata__":{"manifest":"')
    text = metadata[start : metadata.index(b'"}', start)].decode().replace('\\"', '"')
    save_file(tensors, path, {"manifest": text})
    with pytest.raises(UserError) as caught:
        manifest.read(tmp_path)
    assert message in str(caught.value) and path in str(caught.value)


@pytest.mark.parametrize(
    "info, message",
    [
        (lambda info: replace(info, splits={"train": (0, 4)}), "a split lies outside"),
        (lambda info: replace(info, shards=("../a.rec",)), "a pack lies in another folder"),
    ],
)
def test_contradictions_in_the_description_are_refused(tmp_path, info, message):
    write(tmp_path, manifest.encode(replace(example(), info=info(example().info))))
    with pytest.raises(UserError, match=message):
        manifest.read(tmp_path)


def test_files_that_are_no_manifest(tmp_path):
    content = manifest.encode(example())
    save_file({"a": np.zeros(1)}, os.path.join(tmp_path, manifest.NAME))
    with pytest.raises(UserError, match="prepare the data set again"):
        manifest.read(tmp_path)
    for broken in (b"", content[:-1], content[:100], content.replace(b'\\"version\\": 1', b'\\"version\\": 2')):
        write(tmp_path, broken)
        with pytest.raises(UserError, match="prepare the data set again"):
            manifest.read(tmp_path)
