"""Exported models: predictions from a graph's output in numpy, against PyTorch's; threads and devices."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

from zoo.data.errors import UserError
from zoo.tasks import classify, face, segment
from zoo.trainer.onnx import model, world
from zoo.trainer.torch import ops
from zoo.trainer.world import Launch

CLASSES = 5
KERNEL = np.random.default_rng(0).standard_normal((3, CLASSES)).astype(np.float32)


def file(kind):
    return SimpleNamespace(path="a.onnx", metadata=SimpleNamespace(output=SimpleNamespace(kind=kind)))


def arch(**options):
    return SimpleNamespace(**{"align_corners": False, "num_classes": CLASSES, "embedding": CLASSES, **options})


def logits(image):
    """Return logits (N, K, h, w) that depend on a pixel and on its place in the image, for windows and mirrors."""
    height, width = image.shape[1:3]
    place = np.linspace(0, 40, height)[:, None, None] + np.linspace(0, 90, width)[None, :, None]
    return np.moveaxis((image + place - 190).astype(np.float32) @ KERNEL, -1, 1) / 16


def of_torch(image):
    return torch.from_numpy(np.ascontiguousarray(logits(image.numpy())))


def images(*sizes):
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, (2, *size, 3), np.uint8) for size in sizes]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "settings, sizes, size",
    [
        (segment.ClassMap(), [(12, 20)], None),
        (segment.ClassMap(), [(12, 20)], (31, 17)),
        (segment.ClassMap(), [(12, 20)], (5, 6)),
        (segment.ClassMap(flip=True), [(12, 20)], (12, 20)),
        (segment.ClassMap(window=(8, 9)), [(12, 20)], (12, 20)),
        (segment.ClassMap((8, 9), (3, 5), True), [(12, 20), (18, 30), (9, 15)], (23, 40)),
    ],
)
def test_class_maps(settings, sizes, size, align_corners):
    batch = images(*sizes)
    described = arch(align_corners=align_corners)
    expected = settings.predict(ops, described, of_torch, [torch.from_numpy(image) for image in batch], size)
    found = model.build(settings, described, file("logits"))(logits, batch, size)
    assert found.dtype == np.uint8 and len(np.unique(found)) > 2
    assert np.array_equal(found, expected.numpy())


def test_class_maps_of_the_graph():
    def labels(image):
        return logits(image).argmax(1)

    (image,) = images((12, 20))
    build = lambda settings: model.build(settings, arch(), file("class_map"))  # noqa: E731
    assert np.array_equal(build(segment.ClassMap())(labels, [image], (12, 20)), labels(image))
    for settings, size, number in (
        (segment.ClassMap(flip=True), None, 1),
        (segment.ClassMap(window=(8, 8)), None, 1),
        (segment.ClassMap(), (24, 40), 1),
        (segment.ClassMap(), None, 2),
    ):
        with pytest.raises(UserError, match="a.onnx gives class maps, which can be neither averaged"):
            build(settings)(labels, [image] * number, size)
    for wrong in (lambda x: labels(x) - CLASSES, lambda x: labels(x) + CLASSES, lambda x: labels(x).astype(np.float32)):
        with pytest.raises(UserError, match="values that are no classes"):
            build(segment.ClassMap())(wrong, [image], None)


def test_logarithms_of_probabilities_are_logits():
    (image,) = images((4, 6))
    scores = logits(image)[:, :, 0, 0]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    probabilities = powers / powers.sum(1, keepdims=True)
    found = model.build(classify.Scores(), arch(), file("probabilities"))(lambda x: probabilities, [image], None)
    difference = found - scores
    np.testing.assert_allclose(difference, difference[:, :1].repeat(CLASSES, 1), atol=2e-5)
    zero = model.build(classify.Scores(), arch(), file("probabilities"))(lambda x: probabilities * 0, [image], None)
    assert np.isfinite(zero).all()


def test_embeddings():
    (image,) = images((4, 6))

    def embed(x):
        return logits(x)[:, :, 0, 0]

    for flip in (False, True):
        expected = face.Embeddings(flip).predict(
            ops, None, lambda x: torch.from_numpy(embed(x.numpy())), [torch.from_numpy(image)], None
        )
        found = model.build(face.Embeddings(flip), arch(), file("embedding"))(embed, [image], None)
        assert found.dtype == np.float32 and np.array_equal(found, expected.numpy())
    model.build(face.Embeddings(False), arch(), file("unit_embedding"))
    with pytest.raises(UserError, match="a.onnx gives embeddings of length 1"):
        model.build(face.Embeddings(True), arch(), file("unit_embedding"))


@pytest.mark.parametrize(
    "settings, kind",
    [(classify.Scores(), "logits"), (segment.ClassMap(), "logits"), (face.Embeddings(), "embedding")],
)
def test_outputs_of_another_shape(settings, kind):
    with pytest.raises(UserError, match=r"a.onnx: its output has the shape \(1,\) instead of \(2, 5"):
        model.build(settings, arch(), file(kind))(lambda x: np.zeros(1, np.float32), images((4, 6)), None)


def test_threads_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    started = world.start(Launch(), "auto")
    assert (started.device, started.threads, started.providers) == ("cpu (3 threads)", 3, ["CPUExecutionProvider"])
    assert started.cuda_index is None and started.version == onnxruntime.__version__
    monkeypatch.setattr(world.host, "cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(world.host, "cpu_quota", lambda: 2.0)
    for value in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert world.start(Launch(), "cpu").threads == 2


def test_gpus_that_there_are(monkeypatch):
    monkeypatch.setattr(world, "_device_count", lambda kind: {"cuda": 2, "tensorrt": 2}[kind])
    assert world.start(Launch(), "auto").providers[0] == ("CUDAExecutionProvider", {"device_id": "0"})
    started = world.start(Launch(), "tensorrt:1")
    assert started.providers == [("TensorrtExecutionProvider", {"device_id": "1"}), "CPUExecutionProvider"]
    assert started.device == "tensorrt:1"
    assert world.start(Launch(1, 2, 1), "cuda").device == "cuda:1"
    with pytest.raises(UserError, match="there is no cuda:2 here"):
        world.start(Launch(), "cuda:2")
