"""Packed batches: what is unpacked is what was planned, whatever is decoded already."""

import numpy as np
import pytest

from zoo.data.dataset import Pending
from zoo.data.errors import UserError
from zoo.data.loaders import dali_graph
from zoo.data.transforms.geometry import Geometry

PLAIN, CROP = Geometry(flip=True), Geometry((1, 2, 30, 40), (8, 6), True, (1, 0, 5, 6), canvas=(7, 6), fill=(1, 2, 3))


def pack(values, batch_size):
    samples = [{"image": value, "label": np.asarray(at)} for at, value in enumerate(values)]
    arrays, packed = dali_graph.unpack(dali_graph.pack(samples, batch_size))
    assert arrays.keys() == {"label", "valid"} and packed.keys() == {"image"}
    return arrays, packed["image"]


def contents(packed):
    return [bytes(file) for file in packed.files()]


def test_files_geometries_and_images_keep_their_rows():
    image = np.full((6, 7, 3), 9, np.uint8)
    values = [Pending((b"abc",), PLAIN), image, Pending((b"de",), CROP)]
    arrays, packed = pack(values, 4)
    assert contents(packed) == [b"abc", b"de"] and packed.order.tolist() == [0, 2, 1, 1]  # the last one is padding
    assert np.array_equal(packed.decoded, image[None])
    assert arrays["label"].tolist() == [0, 1, 2, 2] and arrays["valid"].tolist() == [1, 1, 1, 0]
    keys = dict(dali_graph.groups(packed.geometry))
    assert keys == {
        dali_graph.Steps(False, False, False, False, False, (0, 0, 0)): [0],
        dali_graph.Steps(True, True, True, True, True, (1, 2, 3)): [1],
    }
    row = packed.geometry[1]
    assert row[dali_graph.BOX].tolist() == [1, 2, 30, 40] and row[dali_graph.SIZE].tolist() == [8, 6]
    assert row[dali_graph.WINDOW].tolist() == [1, 0, 5, 6] and row[dali_graph.CANVAS].tolist() == [7, 6]
    assert packed.geometry[:, dali_graph.FLIP].tolist() == [1, 0]


def test_a_canvas_is_never_smaller_than_the_image():
    for geometry in (Geometry(size=(9, 4)), Geometry((0, 0, 9, 4)), Geometry(size=(30, 30), window=(3, 3, 9, 4))):
        (row,) = dali_graph.table([geometry._replace(canvas=(7, 7))])
        assert row[dali_graph.CANVAS].tolist() == [9, 7]


def test_rows_of_clips():
    clip = np.arange(2 * 6 * 7 * 3, dtype=np.uint8).reshape(2, 6, 7, 3)
    values = [Pending((b"a", b"b"), PLAIN, stacked=True), clip, Pending((b"c", b"d"), PLAIN, stacked=True)]
    _, packed = pack(values, 3)
    assert contents(packed) == [b"a", b"b", b"c", b"d"]
    assert packed.order.tolist() == [[0, 1], [4, 5], [2, 3]] and np.array_equal(packed.decoded, clip)
    assert packed.geometry.shape == (4, dali_graph.COLUMNS)


def test_a_batch_without_pending_images_is_an_ordinary_one():
    samples = [{"image": np.full((2, 2, 3), at, np.uint8)} for at in range(2)]
    batch = dali_graph.pack(samples, 3)
    assert list(batch) == ["image", "valid"] and batch["image"][:, 0, 0, 0].tolist() == [0, 1, 1]
    assert dali_graph.unpack(batch)[1] == {}


def test_images_of_different_sizes_are_refused():
    values = [Pending((b"abc",), PLAIN), np.zeros((6, 7, 3), np.uint8), np.zeros((6, 6, 3), np.uint8)]
    with pytest.raises(UserError, match=r"image: arrays of shape \(6, 7, 3\) and \(6, 6, 3\) cannot share a batch"):
        pack(values, 3)
