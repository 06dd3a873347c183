"""`zoo data align` with a detector whose weights are known: a face lies where a photo has a white square."""

import csv
import math
import shlex
import shutil
import zlib

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from PIL import Image

from tests.helpers import predicting
from tests.helpers.cli import call_zoo
from zoo.data.importing import faces

POINTS = np.array(
    [(-0.6, -0.5), (0.6, -0.5), (0, 0.1), (-0.5, 0.6), (0.5, 0.6)]
)  # from the middle, in squares of 32 pixels
SQUARE = 32


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    """A YuNet that finds a face in every square of its grid of 32 pixels that is white, of 64 pixels, or nearly, of 63.

    It has the outputs of YuNet, per grid of 8, 16 and 32 pixels: class, object, box and points of every square.
    """
    nodes, weights, outputs = [], [], []
    biases = {"cls": [1], "obj": [-20], "bbox": [0.5, 0.5, 0, 0], "kps": (POINTS + 0.5).ravel()}
    for kind, bias in biases.items():
        for stride in (8, 16, 32):
            name, channels = f"{kind}_{stride}", len(bias)
            kernel = np.zeros((channels, 3, stride, stride), np.float32)
            if kind == "obj" and stride == SQUARE:
                kernel[:] = 21 / 255 / kernel[0].size  # 1 where all is white, below 0 at 95 % of it
            elif kind == "bbox":
                kernel[2:] = math.log(2) / 255 / kernel[0].size
            for part, value in (("kernel", kernel), ("bias", np.array(bias, np.float32))):
                weights.append(numpy_helper.from_array(value, f"{name}_{part}"))
            weights.append(numpy_helper.from_array(np.array([1, -1, channels]), f"{name}_shape"))
            names = ("input", f"{name}_kernel", f"{name}_bias")
            nodes += [
                helper.make_node("Conv", names, [f"{name}_map"], strides=[stride] * 2, kernel_shape=[stride] * 2),
                helper.make_node("Transpose", [f"{name}_map"], [f"{name}_last"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", [f"{name}_last", f"{name}_shape"], [name]),
            ]
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, (640 // stride) ** 2, channels]))
    image = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 640, 640])
    graph = helper.make_graph(nodes, "squares", [image], outputs, weights)
    path = tmp_path_factory.mktemp("detector") / "squares.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return path


def photo(path, *squares, size=(640, 480), orientation=1):
    """Write a photo with white squares at columns and rows of a grid of 32 pixels, where its longer side has 640."""
    pixels = np.random.default_rng(zlib.crc32(path.name.encode())).integers(0, 60, (size[1], size[0], 3), np.uint8)
    side = max(size) // 20
    for column, row, *shade in squares:
        pixels[row * side : (row + 1) * side, column * side : (column + 1) * side] = shade[0] if shade else 255
        pixels[row * side - side // 2 : row * side, column * side : (column + 1) * side] = 120  # above it
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif)


def run(photos, detector, out):
    code = call_zoo("data", "align", photos, "--detector", detector, "--out", out)
    rows = {}
    if out.exists():
        with open(out / "faces.csv", encoding="utf-8") as file:
            rows = {row.pop("photo"): row for row in csv.DictReader(file)}
    return code, rows


def read(path):
    return np.asarray(Image.open(path)).astype(int)


def test_persons_become_folders_of_aligned_faces(tmp_path, detector, capsys):
    photos, out = tmp_path / "photos", tmp_path / "out"
    photo(photos / "ann/one.png", (10, 7))
    photo(photos / "ann/large.jpg", (10, 7), size=(2560, 1920))
    photo(photos / "ann/one.jpg", (10, 7), orientation=3)
    photo(photos / "bob/two.png", (4, 4, 250), (12, 9), (14, 3, 250))
    photo(photos / "bob/none.png")
    photo(photos / "cid/sub/none.png")
    (photos / "bob/damaged.jpg").write_bytes(b"x")
    (photos / "bob/phone.HEIC").write_bytes(b"x")
    code, rows = run(photos, detector, out)
    printed = capsys.readouterr().out
    assert "are ignored: 1 .heic" in printed
    assert code == 1 and "person without a face: cid" in printed and "4 faces of 2 persons from 7 photos" in printed
    assert {name: row["left_out"] for name, row in rows.items() if row["left_out"]} == {
        "bob/damaged.jpg": "not an image of a supported format", "bob/none.png": "no face found",
        "cid/sub/none.png": "no face found",
    }  # fmt: skip
    assert rows["bob/two.png"]["faces"] == "3" and rows["bob/two.png"]["width"] == "64"
    assert "several faces, of which the largest was taken: 1" in printed
    assert rows["ann/one.png"]["width"] == "64" and rows["ann/large.jpg"]["width"] == "256"
    written = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.jpg"))
    assert written == ["ann/large.jpg", "ann/one.jpg", "ann/one.png.jpg", "bob/two.jpg"]
    # The square lies in the middle of the points, one unit of which is as long in the aligned face as in the template.
    scale = np.hypot(*faces.similarity(POINTS, faces.TEMPLATE)[:, 0])
    left, top = faces.similarity(POINTS, faces.TEMPLATE)[:, 2] - scale / 2
    for name in ("large", "one"):
        face = read(out / f"ann/{name}.jpg").mean(axis=2)
        assert face.shape == (faces.SIZE,) * 2
        y, x = np.nonzero(face > 180)
        above, below = face[y.min() - 8 : y.min() - 3, 50:60].mean(), face[y.max() + 3 : y.max() + 8, 50:60].mean()
        np.testing.assert_allclose((above, below) if name == "large" else (below, above), (120, 30), atol=8)
        found, expected = [x.min(), x.max(), y.min(), y.max()], [left, left + scale - 1, top, top + scale - 1]
        np.testing.assert_allclose(found, expected, atol=1)


@pytest.mark.slow
def test_the_printed_command_trains(tmp_path, detector, capsys):
    for number in range(36):
        photo(tmp_path / f"photos/{number % 12}/{number}.png", (8 + number % 5, 7))
    assert run(tmp_path / "photos", detector, tmp_path / "out")[0] == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: zoo "))
    few = ("-o", "train.batch=8", "-o", "train.steps=2", "-o", "model.width=8")
    assert call_zoo(*words, *few, "--out", tmp_path / "run") == 0


@pytest.mark.parametrize("fault", ["text", "another model", "missing", "exists", "no persons", "no faces"])
def test_faults_end_in_one_message_and_write_nothing(tmp_path, detector, fault, capsys):
    photos, weights, out = tmp_path / "photos", tmp_path / "weights.onnx", tmp_path / "out"
    photo(photos / "ann/one.png", *([] if fault == "no faces" else [(10, 7)]))
    if fault == "text":
        weights.write_text("text")
    elif fault == "another model":
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 640, 640]) for name in "xy"]
        save(
            helper.make_model(helper.make_graph([helper.make_node("Relu", "x", "y")], "g", infos[:1], infos[1:])),
            weights,
        )
    elif fault != "missing":
        weights = detector
    if fault == "exists":
        out.mkdir()
    photos = photos / "ann" if fault == "no persons" else photos
    assert call_zoo("data", "align", photos, "--detector", weights, "--out", out) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and printed.out == ""
    assert not (tmp_path / "out.partial").exists() and out.exists() == (fault == "exists")


def umeyama(source, target):
    """Umeyama's closed form by singular values, for points of any dimension."""
    a, b = source - source.mean(axis=0), target - target.mean(axis=0)
    left, values, right = np.linalg.svd(b.T @ a / len(a))
    sign = np.array([1, np.sign(np.linalg.det(left) * np.linalg.det(right))])
    linear = left * sign @ right * (values @ sign) / a.var(axis=0).sum()
    return np.column_stack([linear, target.mean(axis=0) - linear @ source.mean(axis=0)])


def test_the_similarity_is_that_of_least_squares():
    rng = np.random.default_rng(0)
    for _ in range(50):
        source, target = rng.normal(size=(2, 5, 2)) * 30
        np.testing.assert_allclose(faces.similarity(source, target), umeyama(source, target), atol=1e-9)
    turned = np.column_stack([[(0, -2), (2, 0)], (5, 7)])  # a quarter turn, twice as large, and a shift
    np.testing.assert_allclose(
        faces.similarity(faces.TEMPLATE, faces.TEMPLATE @ turned[:, :2].T + turned[:, 2]), turned, atol=1e-9
    )


def test_a_face_at_the_template_is_cut_out_as_it_is():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (150, 160, 3), np.uint8)
    np.testing.assert_array_equal(faces.align(pixels, faces.TEMPLATE + (20, 10)), pixels[10:122, 20:132])
    # Large faces are shrunk without skipping pixels, which would leave one of both colors alone.
    stripes = np.zeros((1000, 1000, 3), np.uint8)
    stripes[:, ::2] = 200
    face = faces.align(stripes, faces.TEMPLATE * 8 + 40).astype(int)
    assert abs(face - 100).max() <= 1


def test_photos_are_cut_out_and_named_by_the_persons_of_an_album(tmp_path, detector, capsys):
    """The rows are those of the aligned faces, in a model of initial weights."""
    settings = {"data.num_classes": 5, "data.train_samples": 8, "data.val_samples": 10, "data.size": 112}
    model = {"model.depth": 18, "model.width": 8, "model.embedding": 8, **settings}
    weights = predicting.train(tmp_path / "run", "arcface_synthetic.yaml", model, 1)
    for person, square in (("ann", (3, 4)), ("ben", (9, 8))):
        photo(tmp_path / f"persons/group/{person}/1.png", square)
        shutil.copytree(tmp_path / f"persons/group/{person}", tmp_path / "photos", dirs_exist_ok=True)
        (tmp_path / "photos/1.png").rename(tmp_path / f"photos/{person}.png")
    photo(tmp_path / "photos/nobody.png")
    words = ["--weights", weights, "--detector", detector, "--search", tmp_path / "persons", "--csv"]
    named = ["--threshold", 0.99999]
    code, record, lines, errors = predicting.run_predict(capsys, tmp_path / "a", tmp_path / "photos", *words, *named)
    assert code == 1 and "nobody.png: no face found" in errors
    assert [row.get("person") for row in record["files"]] == ["ann", "ben", None] and "; ann; most similar: " in lines[
        1
    ]
    with open(tmp_path / "a/predictions.csv", encoding="utf-8") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["ann", "ben", ""]
    assert call_zoo("data", "align", tmp_path / "persons/group", "--detector", detector, "--out", tmp_path / "cut") == 0
    _, cut, _, _ = predicting.run_predict(capsys, tmp_path / "b", tmp_path / "cut", "--weights", weights)
    for row, other in zip(record["files"], cut["files"]):
        assert np.dot(row["embedding"], other["embedding"]) > 0.99  # but for the JPEG file
    _, record, _, _ = predicting.run_predict(
        capsys, tmp_path / "c", tmp_path / "photos/ann.png", *words, "--threshold", 1
    )
    assert record["files"][0]["person"] is None
    for change, message in (
        (["--detector", tmp_path / "photos/ann.png"], "is no YuNet that OpenCV can run"),
        (["--detector", tmp_path / "none.onnx"], "none.onnx"),
    ):
        assert call_zoo("predict", tmp_path / "photos", "--weights", weights, *change) == 2
        assert message in capsys.readouterr().err
