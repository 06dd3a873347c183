"""predict.py of faces: the embeddings that an evaluation compares, the similarity of two, a search; little memory."""

import importlib.util
import json
import os
import re
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from data.datasets import faces, imagenet, random_faces
from data.demo import portraits
from data.errors import BadSample, UserError
from data.formats import face_files
from tests.tools.test_predict import COMMON, ROOT, evaluated, evaluating, program, run
from tools import predict
from zoo.predict import faces as face_predictor
from zoo.run.checkpoint import load_checkpoint, save_checkpoint
from zoo.tasks import face

SIZE, WIDTH = 16, 8  # pixels, and numbers of an embedding
NET = {"model.depth": 18, "model.width": 8, "model.embedding": WIDTH, "data.size": SIZE}
SET = {"data.identities": 6, "data.shots": 3, "data.val_identities": 5, "data.val_shots": 4, "data.val_pairs": 30}


def trained(folder, config, settings):
    """A checkpoint of a run of three updates: the path of its folder."""
    pairs = [word for key, value in {**COMMON, **NET, **settings}.items() for word in ("-o", f"{key}={value}")]
    done = program(
        ROOT / "train.py", "-c", ROOT / "configs" / config, "--out", folder / "tiny", *pairs, "--max-steps", 3
    )
    assert done.returncode == 0, done.stderr
    return str(folder / "tiny/checkpoints/last")


@pytest.fixture(scope="module")
def of_portraits(tmp_path_factory):
    """(checkpoint, folder of pictures of those who were not trained on)."""
    folder = tmp_path_factory.mktemp("portraits")
    weights = trained(folder, "arcface_demo.yaml", {**SET, "data.root": folder / "set"})
    return weights, folder / "set" / portraits.UNSEEN


@pytest.fixture(scope="module")
def of_noise(tmp_path_factory):
    """A checkpoint whose identities are numbers, of PLSC's net with dropout, by Partial FC."""
    return trained(
        tmp_path_factory.mktemp("noise"),
        "arcface_synthetic.yaml",
        {"data.num_classes": 40, "data.train_images": 60, "data.val_pairs": 10, "task.sample_rate": 0.5},
    )


@pytest.fixture(autouse=True)
def no_data_set(monkeypatch):
    """Nothing but the evaluation to compare with may load the data that a checkpoint was trained on."""
    for module in (faces, portraits, random_faces):
        monkeypatch.setattr(
            module,
            "load",
            lambda settings, load=module.load: (
                load(settings) if evaluating else pytest.fail("predict.py loads a data set")
            ),
        )


def unit(views):
    """What an evaluation compares, of the views (P, d) of a picture."""
    total = np.asarray(views, np.float64).sum(0)
    return total / np.sqrt((total**2).sum())


def shown(name, root):
    """The two files of a pair by its name."""
    return [root.parent / path for path in re.findall(rf"{root.name}/\d+/\d+\.jpg", name)]


def by_file(record):
    return {row["file"]: np.array(row["embedding"]) for row in record["files"]}


@pytest.mark.parametrize("flip", ["true", "false"])
def test_embeddings_as_an_evaluation_compares_them(of_portraits, flip, tmp_path, capsys):
    weights, root = of_portraits
    change = f"task.flip={flip}"
    code, record, lines, errors = run(capsys, tmp_path / "out", root, "--weights", weights, "-o", change)
    assert (code, errors, record["task"], record["classes"]) == (0, "", "face", []) and "cosine" not in record
    found, views = by_file(record), {}
    for name, pair in evaluated(weights, change).items():
        views.update(zip((str(path) for path in shown(name, root)), pair))
    assert len(views) > 15 and views.keys() <= found.keys() and len(found) == 5 * 4
    for path, each in views.items():
        assert each.shape == (1 + (flip == "true"), WIDTH)
        np.testing.assert_allclose(found[path], unit(each), atol=1e-5)
    for row, line in zip(record["files"], lines):
        assert abs(np.linalg.norm(row["embedding"]) - 1) < 1e-12
        if row["file"] in views:
            length = np.sqrt((views[row["file"]] ** 2).sum(1)).mean()
            assert abs(row["length"] - length) < 1e-4 * length
        assert line == f"{row['file']}: embedding of {WIDTH} numbers, length {row['length']:.4g}"
    with np.load(tmp_path / "out" / face_predictor.EMBEDDINGS) as written:
        assert written["files"].tolist() == list(found) and written["embeddings"].dtype == np.float32
        np.testing.assert_allclose(written["embeddings"], list(found.values()), atol=1e-7)


class Ten:
    """A split of ten pairs as far as the metric asks."""

    sets = (("ten", 0, 10),)

    def __len__(self):
        return 10


def test_two_files_are_compared_by_the_distance_of_an_evaluation(of_portraits, tmp_path, capsys):
    weights, root = of_portraits
    name, pair = next((name, pair) for name, pair in evaluated(weights).items() if " pair 1 " in name)
    paths = shown(name, root)
    metric = face.Metric(Ten())
    metric.update(pair, {"valid": np.ones(1), "label": np.ones(1, np.int64), "pair": np.array([3])})
    code, record, lines, _ = run(capsys, tmp_path / "out", *paths, "--weights", weights)
    distance = metric.state["distance"][3]
    assert code == 0 and 0.001 < distance < 4
    np.testing.assert_allclose([record["squared_distance"], record["cosine"]], [distance, 1 - distance / 2], atol=1e-5)
    assert lines[2:] == [
        f"similarity of the two: cosine {record['cosine']:.4f}, squared distance {record['squared_distance']:.4f}"
    ]


def test_one_of_two_files_is_compared_with_nothing(of_portraits, tmp_path, capsys):
    weights, root = of_portraits
    (tmp_path / "broken.jpg").write_bytes((root / "0000/000.jpg").read_bytes()[:200])
    code, record, lines, errors = run(
        capsys, tmp_path / "out", root / "0000/000.jpg", tmp_path / "broken.jpg", "--weights", weights
    )
    assert code == 2 and len(lines) == 1 and "cosine" not in record and "broken.jpg: cannot be decoded" in errors
    assert ["error" in row for row in record["files"]] == [False, True]


@pytest.mark.parametrize("batch", [64, 4])
def test_a_search_names_the_most_similar_pictures(of_portraits, batch, tmp_path, monkeypatch, capsys):
    weights, root = of_portraits
    monkeypatch.setattr(face_predictor, "BATCH", batch)
    _, known, _, _ = run(capsys, tmp_path / "known", root, "--weights", weights)
    known = by_file(known)
    asked = [str(root / "0001/002.jpg"), str(root / "0003/001.jpg"), str(root / "0004/000.jpg")]
    for words, top in (([], predict.TOP), (["--top", 2], 2), (["--top", 99], len(known))):
        code, record, lines, errors = run(
            capsys, tmp_path / f"out{top}", *asked, "--weights", weights, "--search", root, *words
        )
        assert (code, errors) == (0, "") and lines[3] == f"searching {len(known)} pictures ..."
        for path, row, line in zip(asked, record["files"], lines[4:]):
            cosines = {other: float(known[path] @ known[other]) for other in known}
            best = sorted(cosines.values(), reverse=True)[:top]
            hits = row["most_similar"]
            assert len(hits) == top and hits[0]["file"] == path  # which lies there itself
            np.testing.assert_allclose([hit["cosine"] for hit in hits], best, atol=1e-5)
            np.testing.assert_allclose([cosines[hit["file"]] for hit in hits], best, atol=1e-5)
            assert line == f"{path} is most similar to: " + ", ".join(
                f"{hit['file']} {hit['cosine']:.4f}" for hit in hits
            )


def test_a_search_leaves_out_what_it_cannot_read(of_portraits, tmp_path, capsys):
    weights, root = of_portraits
    album = tmp_path / "album"
    (album / "below").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg", "below/c.jpg"):
        (album / name).write_bytes((root / "0002/001.jpg").read_bytes())
    Image.new("RGB", (20, SIZE)).save(album / "large.png")
    (album / "notes.txt").write_text("no picture")
    words = (root / "0000/000.jpg", "--weights", weights, "--search", album)
    code, record, _, errors = run(capsys, tmp_path / "out", *words)
    assert code == 2 and "large.png: 20 x 16 pixels, not 16 x 16" in errors and "-o data.resize=true" in errors
    assert sorted(hit["file"] for hit in record["files"][0]["most_similar"]) == [
        str(album / name) for name in ("a.jpg", "b.jpg", "below/c.jpg")
    ]
    assert [row["file"] for row in record["files"] if "error" in row] == [str(album / "large.png")]
    for name in ("a.jpg", "b.jpg", "below/c.jpg"):
        (album / name).unlink()
    code, record, lines, _ = run(capsys, tmp_path / "none", *words)
    assert code == 2 and record["files"][0]["most_similar"] == [] and "no picture could be read" in lines[-1]


def test_pictures_of_another_size(of_portraits, tmp_path, capsys):
    """Refused, or stretched as in training: the same as a picture that was stretched before. PNG like JPEG."""
    weights, _ = of_portraits
    picture = np.random.default_rng(0).integers(0, 256, (30, 24, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "large.png")
    Image.fromarray(face_files.decode(str(tmp_path / "large.png"), SIZE, True)).save(tmp_path / "right.png")
    paths = [tmp_path / "large.png", tmp_path / "right.png"]
    code, record, _, errors = run(capsys, tmp_path / "refused", *paths, "--weights", weights)
    assert code == 2 and "large.png: 24 x 30 pixels, not 16 x 16" in errors and "-o data.resize=true" in errors
    assert ["error" in row for row in record["files"]] == [True, False]
    code, record, _, _ = run(capsys, tmp_path / "out", *paths, "--weights", weights, "-o", "data.resize=true")
    assert code == 0 and record["squared_distance"] < 1e-10


def test_a_net_whose_identities_are_numbers(of_noise, tmp_path, capsys):
    """Trained on noise, which has no files: pictures of any size are stretched."""
    for number, size in enumerate((SIZE, 40)):
        pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    code, record, lines, _ = run(capsys, tmp_path / "out", *paths, "--weights", of_noise)
    assert code == 0 and record["classes"] == [] and len(lines) == 3 and -1 <= record["cosine"] < 0.999999


def test_millions_of_classes_take_no_memory(of_noise, tmp_path, capsys):
    tensors, record = load_checkpoint(of_noise)
    head = np.zeros((300_000, WIDTH), np.float32)
    weights = save_checkpoint(str(tmp_path / "run"), 9, {**tensors, face.HEAD_WEIGHT: head}, record, 1)
    Image.new("RGB", (SIZE, SIZE), (90, 10, 30)).save(tmp_path / "a.png")
    found = []
    for name in (of_noise, of_noise, weights):  # the first one may import a framework
        tracemalloc.start()
        code, said, _, _ = run(capsys, tmp_path / f"out{len(found)}", tmp_path / "a.png", "--weights", name)
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert code == 0
    assert found[2] - found[1] < head.nbytes / 8
    arguments = predict.parse(["a", "--weights", weights, "--device", "cpu"])
    fields = random_faces.RandomFaceSplit(random_faces.Settings(size=SIZE), True).fields
    model = predict.build(weights, *predict.read(arguments), fields)
    assert {param.name: param.shape for param in model.trainer.params}[face.HEAD_WEIGHT] == (1, WIDTH)


@pytest.mark.parametrize("framework", ["paddle", "mindspore"])
def test_the_same_in_another_framework(of_portraits, framework, tmp_path, capsys):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    weights, root = of_portraits
    words = [root / "0000/000.jpg", root / "0001/000.jpg", "--weights", weights, "--search", root / "0002"]
    _, here, _, _ = run(capsys, tmp_path / "torch", *words)
    done = program(
        ROOT / "tools/predict.py", *words, "--framework", framework, "--device", "cpu", "--out", tmp_path / "other"
    )
    assert done.returncode == 0, done.stderr
    there = json.loads((tmp_path / "other" / predict.RESULTS).read_text())
    assert there["framework"] == framework and abs(there["cosine"] - here["cosine"]) < 1e-5
    for one, other in zip(here["files"], there["files"]):
        np.testing.assert_allclose(one["embedding"], other["embedding"], atol=1e-5)
        np.testing.assert_allclose(*([hit["cosine"] for hit in row["most_similar"]] for row in (one, other)), atol=1e-5)


def test_weights_that_are_no_numbers(of_portraits, tmp_path, capsys):
    tensors, record = load_checkpoint(of_portraits[0])
    tensors["fc.bias"][2] = np.nan
    weights = save_checkpoint(str(tmp_path / "run"), 9, tensors, record, 1)
    code, record, lines, errors = run(capsys, tmp_path / "out", of_portraits[1] / "0000", "--weights", weights)
    assert code == 2 and lines == [] and face_predictor.NO_DIRECTION in errors
    assert all("error" in row for row in record["files"]) and os.listdir(tmp_path / "out") == [predict.RESULTS]


class Model:
    """A trainer whose net gives the first pixel's colour, and for the mirror image the last one's."""

    def to_device(self, batch):
        return batch["image"]

    def predict(self, images):
        return np.stack([images[:, 0, 0], images[:, 0, -1]], 1).astype(np.float32)


def coloured(path, first, last):
    Image.fromarray(np.array([[first, last]] * 2, np.uint8)).save(path)
    return str(path)


def test_embeddings_by_hand(tmp_path):
    units, lengths = face_predictor.embed(
        Model(), np.array([[[[3, 0, 0], [0, 4, 0]]], [[[0, 0, 0], [0, 0, 0]]]], np.uint8)
    )
    np.testing.assert_allclose(units[0], [0.6, 0.8, 0], atol=1e-15)
    assert np.isnan(units[1]).all() and lengths.tolist() == [3.5, 0]
    album = [
        coloured(tmp_path / "a.png", (0, 0, 0), (0, 0, 0)),
        coloured(tmp_path / "b.png", (0, 9, 0), (0, 9, 0)),
        coloured(tmp_path / "c.png", (30, 0, 0), (0, 40, 0)),
    ]
    failures = []
    paths, cosines = face_predictor.search(Model(), SimpleNamespace(size=2, resize=False), units[:1], album, failures)
    assert paths == album[1:] and failures == [(album[0], face_predictor.NO_DIRECTION)]
    np.testing.assert_allclose(cosines, [[0.8, 1.0]], atol=1e-15)
    model = SimpleNamespace(trainer=Model(), cfg=SimpleNamespace(data=SimpleNamespace(size=2, resize=False)))
    with pytest.raises(BadSample, match="its embedding is zero"):
        face_predictor.describe(model, album[0])


@pytest.mark.parametrize(
    "words, said",
    [
        (["--search", "nowhere"], "--search: nowhere is no folder with pictures (files ending in .jpeg, .jpg, .png"),
        (["--search", "."], "--search: . is no folder with pictures"),
        (["--top", "3"], "--top: of faces, it says how many pictures --search names; name a folder with --search"),
        (["-o", "data.size=32"], "does not fit this net"),
        (["-o", "model.embedding=12"], "does not fit this net"),
    ],
)
def test_mistakes_end_in_one_message(of_portraits, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert predict.main([str(of_portraits[1]), "--weights", of_portraits[0], "--device", "cpu", *words]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and said in err and out == "" and os.listdir(tmp_path) == []


def test_only_faces_are_searched_for():
    kind = predict.kind_of("classify", imagenet.Settings())
    assert predict.album_of(kind, None, 3) == []
    with pytest.raises(UserError, match="--search: finds faces .* task is classify; leave it out"):
        predict.album_of(kind, ".", None)
    for settings in (faces.Settings(), portraits.Settings(), random_faces.Settings()):
        assert predict.kind_of("face", settings).compare is face_predictor.compare
