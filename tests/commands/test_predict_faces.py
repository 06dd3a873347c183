"""tools/predict.py with faces: the embeddings of an evaluation, the similarity of two, a search; little memory."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.helpers.cli import call_zoo
from tests.helpers.predicting import evaluation_outputs, run_predict, train
from zoo.data.demo import portraits
from zoo.data.formats import face_files
from zoo.predict import faces as face_predictor
from zoo.predict import results
from zoo.tasks import face

SIZE, WIDTH = 16, 8  # pixels, and numbers of an embedding
MODEL = {"model.depth": 18, "model.width": 8, "model.embedding": WIDTH, "data.size": SIZE}
SET = {"data.identities": 6, "data.shots": 3, "data.val_identities": 5, "data.val_shots": 4, "data.val_pairs": 30}


pytestmark = pytest.mark.usefixtures("no_datasets")


@pytest.fixture(scope="module")
def portrait_model(tmp_path_factory):
    """Checkpoint, folder of images of identities that it was not trained on."""
    folder = tmp_path_factory.mktemp("portraits")
    weights = train(folder, "arcface_demo.yaml", {**MODEL, **SET, "data.root": folder / "set"}, 3)
    return weights, folder / "set" / portraits.UNSEEN


@pytest.fixture(scope="module")
def random_face_model(tmp_path_factory):
    """Checkpoint of PLSC's model with dropout, trained by Partial FC; its identities are numbers."""
    settings = {"data.num_classes": 40, "data.train_samples": 60, "data.val_samples": 10, "task.sample_rate": 0.5}
    return train(tmp_path_factory.mktemp("random"), "arcface_synthetic.yaml", {**MODEL, **settings}, 3)


def unit(views):
    """Compute the embedding that an evaluation compares from those of the views (P, d) of an image."""
    total = np.asarray(views, np.float64).sum(0)
    return total / np.sqrt((total**2).sum())


def shown(name, root):
    """List the two files of a pair by its name."""
    return [root.parent / path for path in re.findall(rf"{root.name}/\d+/\d+\.jpg", name)]


def by_file(record):
    return {row["file"]: np.array(row["embedding"]) for row in record["files"]}


@pytest.mark.parametrize("flip", ["true", "false"])
def test_embeddings_as_in_an_evaluation(portrait_model, flip, tmp_path, capsys):
    weights, root = portrait_model
    change = f"task.flip={flip}"
    code, record, lines, errors = run_predict(capsys, tmp_path / "out", root, "--weights", weights, "-o", change)
    assert (code, errors, record["task"], record["classes"]) == (0, "", "face", []) and "cosine" not in record
    found, views = by_file(record), {}
    for name, pair in evaluation_outputs(weights, change).items():
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
    with np.load(tmp_path / "out" / face_predictor.EMBEDDINGS_FILE) as written:
        assert written["files"].tolist() == list(found) and written["embeddings"].dtype == np.float32
        np.testing.assert_allclose(written["embeddings"], list(found.values()), atol=1e-7)


class Ten:
    """A split of ten pairs, as the metric needs it."""

    sets = (("ten", 0, 10),)

    def __len__(self):
        return 10


def test_two_files_are_compared_by_the_distance_of_an_evaluation(portrait_model, tmp_path, capsys):
    weights, root = portrait_model
    name, pair = next((name, pair) for name, pair in evaluation_outputs(weights).items() if " pair 1 " in name)
    paths = shown(name, root)
    metric = face.Metric(Ten())
    metric.update(pair, {"valid": np.ones(1), "label": np.ones(1, np.int64), "index": np.array([3])})
    code, _, lines, _ = run_predict(capsys, tmp_path / "out", *paths, "--weights", weights)
    distance = metric.state["distance"][3]
    assert code == 0 and 0.001 < distance < 4
    found = re.fullmatch(r"similarity of the two: cosine (\S+), squared distance (\S+)", lines[2])
    np.testing.assert_allclose([float(found[1]), float(found[2])], [1 - distance / 2, distance], atol=1e-4)
    assert len(lines) == 3


@pytest.mark.parametrize("batch", ["auto", 4])
def test_a_search_lists_the_most_similar_images(portrait_model, batch, tmp_path, capsys):
    weights, root = portrait_model
    _, known, _, _ = run_predict(capsys, tmp_path / "known", root, "--weights", weights)
    known = by_file(known)
    asked = [str(root / "0001/002.jpg"), str(root / "0003/001.jpg"), str(root / "0004/000.jpg")]
    for words, top in (([], results.DEFAULT_TOP), (["--top", 2], 2), (["--top", 99], len(known))):
        code, record, lines, errors = run_predict(
            capsys, tmp_path / f"out{top}", *asked, "--weights", weights, "--search", root, "--batch", batch, *words
        )
        assert (code, errors) == (0, "") and lines[0] == f"searching {len(known)} images ..."
        assert lines[1].startswith("no person is named, since no evaluation has chosen a threshold")
        for path, row, line in zip(asked, record["files"], lines[2:], strict=True):
            cosines = {other: float(known[path] @ known[other]) for other in known}
            best = sorted(cosines.values(), reverse=True)[:top]
            hits = row["most_similar"]
            assert len(hits) == top and hits[0]["file"] == path  # which lies there itself
            np.testing.assert_allclose([hit["cosine"] for hit in hits], best, atol=1e-5)
            np.testing.assert_allclose([cosines[hit["file"]] for hit in hits], best, atol=1e-5)
            assert line.partition("; most similar: ")[2] == ", ".join(
                f"{hit['file']} {hit['cosine']:.4f}" for hit in hits
            )


def test_a_flat_folder_is_searched_in_a_flat_gallery_and_the_threshold_is_named(portrait_model, tmp_path, capsys):
    weights = shutil.copytree(portrait_model[0], tmp_path / "weights")
    metrics = {"accuracy": 0.9, "thresholds": {"unseen": 1.2}}
    (weights / "evaluation.json").write_text(json.dumps(metrics))
    for name, number in (("queries", 1), ("gallery", 2)):
        (tmp_path / name).mkdir()
        for person in (1, 2, 3):
            shutil.copy(portrait_model[1] / f"000{person}/00{number}.jpg", tmp_path / name / f"img_0000{person}.jpg")
    words = ["--weights", weights, "--search", tmp_path / "gallery"]
    code, record, lines, errors = run_predict(capsys, tmp_path / "out", tmp_path / "queries", *words)
    assert (code, errors) == (0, "") and [len(row["most_similar"]) for row in record["files"]] == [3, 3, 3]
    assert lines[-1] == (
        "threshold: cosine 0.400 (squared distance 1.20): faces more alike count as one person; this value divides the "
        "pairs of unseen best"
    )


def test_images_of_another_size(portrait_model, tmp_path, capsys):
    """Refused, or resized as in training: the same as an image that was resized before. PNG like JPEG."""
    weights, _ = portrait_model
    image = np.random.default_rng(0).integers(0, 256, (30, 24, 3), np.uint8)
    Image.fromarray(image).save(tmp_path / "large.png")
    Image.fromarray(face_files.decode(str(tmp_path / "large.png"), SIZE, True)).save(tmp_path / "right.png")
    paths = [tmp_path / "large.png", tmp_path / "right.png"]
    code, record, _, errors = run_predict(capsys, tmp_path / "refused", *paths, "--weights", weights)
    assert code == 1 and "large.png: 24 x 30 pixels, not 16 x 16" in errors and "with data.resize=true" in errors
    assert ["error" in row for row in record["files"]] == [True, False]
    code, record, _, _ = run_predict(capsys, tmp_path / "out", *paths, "--weights", weights, "-o", "data.resize=true")
    assert code == 0 and np.ptp([row["embedding"] for row in record["files"]], 0).max() < 1e-6


def test_a_model_whose_identities_are_numbers(random_face_model, tmp_path, capsys):
    """Trained on random faces, which have no files: images of any size are resized."""
    for number, size in enumerate((SIZE, 40)):
        pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    code, record, lines, _ = run_predict(capsys, tmp_path / "out", *paths, "--weights", random_face_model)
    assert code == 0 and record["classes"] == [] and len(lines) == 3
    assert np.ptp([row["embedding"] for row in record["files"]], 0).max() > 1e-3


@pytest.mark.parametrize(
    "words, message",
    [
        (["--search", "nowhere"], "--search: nowhere is no folder with images (files ending in .jpeg, .jpg, .jpe"),
        (["--search", "."], "--search: . is no folder with images"),
        (["--top", "3"], "--top: for faces, the number of images that --search lists; give a folder with --search"),
        (["-o", "data.size=32"], "does not match this model"),
        (["-o", "model.embedding=12"], "does not match this model"),
    ],
)
def test_errors_are_one_message(portrait_model, words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call_zoo("predict", str(portrait_model[1]), "--weights", portrait_model[0], "--device", "cpu", *words) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and message in err and out == "" and os.listdir(tmp_path) == []
