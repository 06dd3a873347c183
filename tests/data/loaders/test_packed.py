"""Packed batches, and those that DALI decodes in this process, with its operators for a CPU."""

import threading

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from zoo.data.dataset import Pending
from zoo.data.errors import UserError
from zoo.data.loaders import dali_graph
from zoo.data.loaders.dali_graph import DeviceDecoder, Graph, Steps
from zoo.data.loaders.packed import AT_A_TIME, BOX, CANVAS, COLUMNS, FLIP, SIZE, WINDOW, Failure, pack, table, unpack
from zoo.data.stream import open_evaluation, open_training
from zoo.data.transforms import pixels
from zoo.data.transforms.geometry import Geometry

ON_CPU = None  # instead of the number of a CUDA device


def decode_all(stream, decoder):
    """Return the batches of a stream as NumPy arrays, and how many arrays were packed."""
    batches, packed = [], 0
    for loaded, unreadable in stream:
        arrays, images = decoder.decode(loaded)
        packed += len(images)
        batches.append(({**arrays, **{name: value.on_host() for name, value in images.items()}}, unreadable))
    return batches, packed


def assert_equal(expected, given):
    for (left, left_unreadable), (right, right_unreadable) in zip(expected, given, strict=True):
        assert left.keys() == right.keys() and left_unreadable == right_unreadable
        for name, array in left.items():
            assert array.dtype == right[name].dtype and np.array_equal(array, right[name]), name


@needs_dali
@pytest.mark.parametrize("name", sets.SETS)
def test_batches_are_those_of_the_worker_processes(name, tmp_path):
    train, val = sets.SETS[name](tmp_path)
    decoder = DeviceDecoder(ON_CPU, threads=2)
    given, packed = decode_all(open_training(train, 3, 4, 0, 4, loader="encoded"), decoder)
    assert_equal(list(open_training(train, 3, 4, 0, 4, loader="dali")), given)
    size = 4 if name == "images" else 1  # whose last batch is padded
    given, packed_of_evaluation = decode_all(open_evaluation(val, 3, size, loader="encoded"), decoder)
    assert_equal(list(open_evaluation(val, 3, size, loader="dali")), given)
    assert (packed + packed_of_evaluation == 0) == (name in sets.DECODED)


@needs_dali
def test_decoded_images_keep_their_memory():
    """Whatever is decoded after them, and when nothing but DLPack's view refers to them."""
    decoder = DeviceDecoder(ON_CPU, 1)

    def decode(seed):
        values = [Pending((sets.encoded(sets.smooth(40, 30, seed + at)),), Geometry()) for at in range(4)]
        (images,) = decoder.decode(pack([{"image": value} for value in values], 4))[1].values()
        assert images.is_whole
        return np.from_dlpack(images.decoded[0])

    first = decode(0)
    copy = first.copy()
    assert all(not np.array_equal(decode(seed), copy) for seed in range(1, 30))
    assert np.array_equal(first, copy)


@needs_dali
def test_geometries_of_several_kinds_share_a_batch():
    """Each kind is decoded by a pipeline of its own; the images go back to their rows."""
    images = [sets.smooth(24 + 2 * at, 20 + 2 * at, at) for at in range(6)]
    geometries = [
        Geometry((2, 3, 20, 16)),
        Geometry(size=(20, 16)),
        Geometry((1, 0, 20, 16), flip=True),
        Geometry(size=(24, 20), window=(1, 2, 20, 16)),
        Geometry(size=(20, 16), flip=True),
    ]
    values = [Pending((sets.encoded(image, "PNG"),), geometry) for image, geometry in zip(images, geometries)]
    whole = images[5][:16, :20]
    batch = pack([{"image": value} for value in (*values[:2], whole, *values[2:])], 8)
    decoded = DeviceDecoder(ON_CPU, 1).decode(batch)[1]["image"]
    expected = [pixels.apply(image, geometry) for image, geometry in zip(images, geometries)]
    expected = np.stack([*expected[:2], whole, *expected[2:], expected[-1], expected[-1]]).astype(int)
    assert len(decoded.decoded) == 3 and not decoded.is_whole
    assert np.abs(decoded.on_host() - expected).max() <= 1


@needs_dali
def test_a_canvas_is_filled_as_by_the_reference_loader():
    image = sets.smooth(40, 30)
    for geometry in (
        Geometry(size=(20, 50), flip=True, canvas=(32, 32), fill=(124, 116, 104)),
        Geometry((3, 2, 30, 20), (30, 20), window=(1, 1, 9, 9), canvas=(10, 12), fill=(1, 2, 3)),
    ):
        batch = pack([{"image": Pending((sets.encoded(image, "PNG"),), geometry)}], 1)
        found = DeviceDecoder(ON_CPU, 1).decode(batch)[1]["image"].on_host()[0]
        expected = pixels.apply(image, geometry)
        assert found.shape == expected.shape
        assert np.abs(found.astype(int) - expected).max() <= 1


@needs_dali
def test_images_of_different_sizes_are_refused():
    values = [Pending((sets.encoded(sets.smooth(40, side)),), Geometry()) for side in (30, 31)]
    batch = pack([{"image": value} for value in values], 2)
    with pytest.raises(UserError, match=r"image: arrays of shape \(30, 40, 3\) and \(31, 40, 3\) cannot share"):
        DeviceDecoder(ON_CPU, 1).decode(batch)


@needs_dali
def test_a_decoder_works_on_after_a_failure():
    whole, decoder = sets.encoded(sets.smooth(40, 30)), DeviceDecoder(ON_CPU, 1)
    for content in (whole, whole[:200], whole):
        batch = pack([{"image": Pending((content,), Geometry())}], 1)
        if content is whole:
            assert decoder.decode(batch)[1]["image"].on_host().shape == (1, 30, 40, 3)
            continue
        with pytest.raises(Failure):
            decoder.decode(batch)


@needs_dali
def test_more_threads_than_pipelines_share_a_decoder(tmp_path):
    train, val = sets.image_set(tmp_path)
    decoder, found = DeviceDecoder(ON_CPU, 1), {}

    def read(name, stream):
        found[name], _ = decode_all(stream, decoder)

    streams = {
        "training": lambda loader: open_training(train, 3, 4, 0, 30, loader=loader),
        "more training": lambda loader: open_training(train, 4, 2, 0, 30, loader=loader),
        "evaluation": lambda loader: open_evaluation(val, 3, 3, loader=loader),
    }
    assert len(streams) > AT_A_TIME
    threads = [threading.Thread(target=read, args=(name, stream("encoded"))) for name, stream in streams.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, stream in streams.items():
        assert_equal(list(stream("dali")), found[name])


@needs_dali
@pytest.mark.parametrize("box", [False, True])
def test_the_graph_for_a_gpu_is_one_of_dali(box):
    """DALI checks devices and arguments of the operators when a graph is defined; only to build it takes a GPU."""
    key = Steps(box, True, True, True, True, (1, 2, 3))
    assert dali_graph.define(key, 4, 2, device_id=0)
    with pytest.MonkeyPatch.context() as patch:
        from nvidia.dali import fn

        patch.setattr(fn, "flip", lambda images, **options: fn.rotate(images, device="cpu", angle=1.0))
        with pytest.raises(RuntimeError, match="incompatible device"):
            dali_graph.define(key, 4, 2, device_id=0)


@needs_dali
def test_a_gpu_that_dali_cannot_use_is_an_error_before_training(monkeypatch):
    def build(self):
        raise RuntimeError("CUDA driver version is insufficient\nsecond line")

    monkeypatch.setattr("nvidia.dali.pipeline.Pipeline.build", build)
    message = (
        r"data.dali_device: DALI cannot use cuda:3 \(CUDA driver version is insufficient\); .*data.dali_device=cpu"
    )
    with pytest.raises(UserError, match=message):
        dali_graph.require_device(3)


@needs_dali
def test_a_graph_is_built_once_for_batches_of_one_size(tmp_path, monkeypatch):
    built = []

    class Counted(Graph):
        def __init__(self, *arguments):
            built.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr("zoo.data.loaders.dali_graph.Graph", Counted)
    train, _ = sets.image_set(tmp_path)
    decode_all(open_training(train, 3, 4, 0, 6, loader="encoded"), DeviceDecoder(ON_CPU, 3))
    assert [(room, threads, device) for _, room, threads, device in built] == [(4, 3, ON_CPU)]


PLAIN, CROP = Geometry(flip=True), Geometry((1, 2, 30, 40), (8, 6), True, (1, 0, 5, 6), canvas=(7, 6), fill=(1, 2, 3))


def unpacked(values, batch_size):
    samples = [{"image": value, "label": np.asarray(at)} for at, value in enumerate(values)]
    arrays, packed = unpack(pack(samples, batch_size))
    assert arrays.keys() == {"label", "valid"} and packed.keys() == {"image"}
    return arrays, packed["image"]


def contents(packed):
    return [bytes(file) for file in packed.files()]


def test_files_geometries_and_images_keep_their_rows():
    image = np.full((6, 7, 3), 9, np.uint8)
    values = [Pending((b"abc",), PLAIN), image, Pending((b"de",), CROP)]
    arrays, packed = unpacked(values, 4)
    assert contents(packed) == [b"abc", b"de"] and packed.order.tolist() == [0, 2, 1, 1]  # the last one is padding
    assert np.array_equal(packed.decoded, image[None])
    assert arrays["label"].tolist() == [0, 1, 2, 2] and arrays["valid"].tolist() == [1, 1, 1, 0]
    keys = dict(dali_graph.groups(packed.geometry))
    assert keys == {
        dali_graph.Steps(False, False, False, False, False, (0, 0, 0)): [0],
        dali_graph.Steps(True, True, True, True, True, (1, 2, 3)): [1],
    }
    row = packed.geometry[1]
    assert row[BOX].tolist() == [1, 2, 30, 40] and row[SIZE].tolist() == [8, 6]
    assert row[WINDOW].tolist() == [1, 0, 5, 6] and row[CANVAS].tolist() == [7, 6]
    assert packed.geometry[:, FLIP].tolist() == [1, 0]


def test_a_canvas_is_never_smaller_than_the_image():
    for geometry in (Geometry(size=(9, 4)), Geometry((0, 0, 9, 4)), Geometry(size=(30, 30), window=(3, 3, 9, 4))):
        (row,) = table([geometry._replace(canvas=(7, 7))])
        assert row[CANVAS].tolist() == [9, 7]


def test_rows_of_clips():
    clip = np.arange(2 * 6 * 7 * 3, dtype=np.uint8).reshape(2, 6, 7, 3)
    values = [Pending((b"a", b"b"), PLAIN, stacked=True), clip, Pending((b"c", b"d"), PLAIN, stacked=True)]
    _, packed = unpacked(values, 3)
    assert contents(packed) == [b"a", b"b", b"c", b"d"]
    assert packed.order.tolist() == [[0, 1], [4, 5], [2, 3]] and np.array_equal(packed.decoded, clip)
    assert packed.geometry.shape == (4, COLUMNS)


def test_a_batch_without_pending_images_is_an_ordinary_one():
    samples = [{"image": np.full((2, 2, 3), at, np.uint8)} for at in range(2)]
    batch = pack(samples, 3)
    assert list(batch) == ["image", "valid"] and batch["image"][:, 0, 0, 0].tolist() == [0, 1, 1]
    assert unpack(batch)[1] == {}
