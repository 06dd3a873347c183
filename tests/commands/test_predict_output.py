"""zoo predict writes as it goes and goes on after a kill; tables, explanations, batches and addresses."""

import csv
import json
import shutil
import subprocess
import sys
import threading
from functools import partial
from hashlib import sha256
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.exported import export
from tests.helpers.paths import ROOT
from tests.helpers.predicting import CLASSES, by_name, run_predict, scene
from zoo.data.demo import motion, shapes
from zoo.predict import batches, explain, output, overlay
from zoo.predict.results import Sample
from zoo.run import trained

pytestmark = pytest.mark.usefixtures("no_datasets")


HIDDEN = "https://me:secret@h"


@pytest.fixture
def photos(image_model, tmp_path):
    """Folder of eight images and of a file that is none."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, path in enumerate(sorted((image_model[1] / "val").rglob("*.JPEG"))):
        shutil.copy(path, folder / f"{number}.jpg")
    (folder / "3b.jpg").write_bytes(b"no image")
    return folder


@pytest.mark.slow
def test_a_killed_call_goes_on_after_the_last_whole_line(image_model, photos, tmp_path, capsys):
    words = [photos, "--weights", image_model[0], "--batch", 2]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    code, expected, lines, _ = run_predict(capsys, whole, *words)
    assert code == 1 and len(expected["files"]) == 9
    command = [sys.executable, "-m", "zoo", "predict", *map(str, words), "--out", str(cut), "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stdout.readline() == f"{lines[0]}\n"
        process.kill()
    rows = (cut / output.ROWS).read_bytes()
    assert (whole / output.ROWS).read_bytes().startswith(rows[: rows.rfind(b"\n") + 1])
    (cut / output.ROWS).write_bytes((whole / output.ROWS).read_bytes()[:-20])  # the last line is not whole
    code, found, lines, errors = run_predict(capsys, cut, *words)
    assert code == 1 and found == expected and len(lines) == 2 and errors == ""
    assert lines[0] == f"{cut} has the predictions of 8 of 9 files; going on"
    code, found, lines, _ = run_predict(capsys, cut, *words)
    assert code == 1 and found == expected and len(lines) == 1  # nothing is left to do


def test_parts_in_any_order_are_joined_by_the_last(image_model, photos, tmp_path, capsys):
    words = ["predict", photos, "--weights", image_model[0], "--batch", 1, "--csv", "--device", "cpu", "--out"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert call_zoo(*words, whole) == 1
    assert call_zoo(*words, out, "--part", "2/3") == 0 and "part 2/3 is done" in capsys.readouterr().out
    assert call_zoo(*words, out, "--part", "0/3") == 0
    rows = out / "parts/0-of-3" / output.ROWS
    rows.write_bytes(rows.read_bytes()[:-20])  # as after a kill
    assert call_zoo(*words, out, "--part", "1/3") == 1 and not (out / output.ROWS).exists()  # it has the bad file
    capsys.readouterr()
    assert call_zoo(*words, out, "--part", "0/3") == 0 and f"results are in {out}" in capsys.readouterr().out
    for name in (output.ROWS, output.ORIGIN, output.TABLE):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert call_zoo(*words, out, "--part", "0/3") == 0  # nothing is left to do
    assert call_zoo(*words, out, "--part", "1/3", "--top", 1) == 2
    assert "holds predictions with top=None, not 1" in capsys.readouterr().err


def test_a_folder_with_parts_of_something_else_is_not_written_to(image_model, photos, tmp_path, capsys):
    for name in ("album/parts/wheel.png", "other/parts/0-of-2/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    words = ["predict", photos, "--weights", image_model[0], "--device", "cpu", "--part", "0/2", "--out"]
    assert call_zoo(*words, tmp_path / "album") == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "album").rglob("*")] == ["parts", "wheel.png"]
    assert call_zoo(*words, tmp_path / "other") == 0  # where another part begins


@pytest.mark.parametrize("text", ["3/3", "1", "a/b", "1/-2", "0/0"])
def test_parts_that_are_none(text, image_model, photos, tmp_path, capsys):
    words = ["predict", photos, "--weights", image_model[0], "--part"]
    assert call_zoo(*words, text, "--out", tmp_path / "out") == 2
    assert f"--part {text}: expected K/N" in capsys.readouterr().err
    assert call_zoo(*words, "0/2") == 2 and "--part: is for files, and needs --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["-o", "data.eval_resize=40"], "holds predictions with data.eval_resize=None, not 40; choose another folder"),
        (["--top", "3"], "holds predictions with top=None, not 3"),
        (["--explain"], "holds predictions with explain=None, not "),
        (["--weights", "{other}"], "holds predictions with weights="),
        (["{photos}/7.jpg"], "holds predictions of other files"),
        (["--batch", "0"], "--batch: expected auto or a number of samples, at least 1, got '0'"),
        (["--workers", "-1"], "--workers: expected a number of processes from 0 to 256, got -1"),
    ],
)
def test_another_call_does_not_go_on(image_model, clip_model, photos, words, message, tmp_path, capsys):
    words = [word.format(other=clip_model[0], photos=photos) for word in words]
    files = [] if words[0].endswith(".jpg") else [photos / "0.jpg"]
    run_predict(capsys, tmp_path / "out", photos / "0.jpg", "--weights", image_model[0])
    before = [(path.name, path.read_bytes()) for path in sorted((tmp_path / "out").iterdir())]
    out = ["--weights", image_model[0], "--out", tmp_path / "out", "--device", "cpu"]
    assert call_zoo("predict", *files, *out, *words) == 2
    assert message in capsys.readouterr().err
    assert before == [(path.name, path.read_bytes()) for path in sorted((tmp_path / "out").iterdir())]


def test_retrained_weights_and_damaged_records_are_refused(image_model, photos, tmp_path, capsys):
    words = ["predict", photos / "0.jpg", "--weights", image_model[0], "--out", tmp_path / "out", "--device", "cpu"]
    assert call_zoo(*words) == 0
    record = tmp_path / "out" / output.ORIGIN
    text = record.read_text()
    record.write_text(text.replace(json.loads(text)["sha256"], "0" * 64))
    assert call_zoo(*words) == 2 and f"holds predictions with sha256={'0' * 64}, not" in capsys.readouterr().err
    record.write_text("{")
    assert call_zoo(*words) == 2 and "origin.json is damaged" in capsys.readouterr().err
    record.unlink()
    assert call_zoo(*words) == 2 and "exists already and is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--batch", "1"], ["--batch", "3", "--workers", "2"]])
def test_results_do_not_depend_on_batches_and_workers(image_model, photos, words, tmp_path, capsys):
    """But for rounding."""
    _, expected, _, _ = run_predict(capsys, tmp_path / "auto", photos, "--weights", image_model[0])
    _, found, _, errors = run_predict(capsys, tmp_path / "out", photos, "--weights", image_model[0], *words)
    assert [row["file"] for row in found["files"]] == [row["file"] for row in expected["files"]]
    for row, other in zip(found["files"], expected["files"], strict=True):
        assert row.get("error") == other.get("error")
        if "error" not in row:
            np.testing.assert_allclose(list(by_name(row).values()), list(by_name(other).values()), rtol=1e-5)
    assert "3b.jpg: not an image of a supported format" in errors


def test_tables(image_model, scene_model, photos, tmp_path, capsys):
    _, record, _, _ = run_predict(capsys, tmp_path / "a", photos, "--weights", image_model[0], "--csv")
    with open(tmp_path / "a" / output.TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    for row, expected in zip(rows, record["files"], strict=True):
        (best, *_) = expected.get("predictions", [{"label": "", "probability": ""}])
        assert row == {"file": expected["file"], "error": expected.get("error", ""), **{k: str(best[k]) for k in best}}
    _, record, _, _ = run_predict(
        capsys, tmp_path / "b", scene_model[1] / "images/val", "--weights", scene_model[0], "--csv"
    )
    with open(tmp_path / "b" / output.TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["label"], float(row["probability"])) for row in rows] == [
        (row["shares"][0]["label"], row["shares"][0]["share"]) for row in record["files"]
    ]


def test_activation_maps_of_images_and_clips(image_model, clip_model, photos, tmp_path, capsys):
    """Their mean is the logit; they are drawn over what the model sees."""
    for (weights, _), names, files, words in (
        (image_model, shapes.CLASSES, [photos / "0.jpg"], ["-o", "data.eval_resize=16"]),
        (clip_model, motion.CLASSES, sorted((clip_model[1] / "val").rglob("*.mp4"))[:1], ["-o", "data.eval_crops=3"]),
    ):
        found = trained.read(str(weights), "torch", "cpu", words[1:])
        model = found.load()
        sample = found.predictor.read(model.cfg.data, 1, str(files[0]), 0)
        (logits,), (maps,) = (batches.forward(model, features, [sample]) for features in (False, True))
        for label in range(len(names)):
            heat = explain.activations(model.head, maps, label)
            assert heat.mean() == pytest.approx(logits.mean(0)[label], abs=1e-5)
        code, record, _, _ = run_predict(
            capsys, tmp_path / f"out{len(words[1])}", *files, "--weights", weights, *words, "--explain", names[3]
        )
        (row,) = record["files"]
        image = np.asarray(Image.open(row["written"]["explanation"]))
        (views,) = sample.batch.values()
        frames = views[0] if views.ndim == 5 else views
        factor = -(-overlay.MIN_CAPTION_WIDTH // (len(frames) * frames.shape[2]))
        assert code == 0 and image.shape[1] == factor * len(frames) * frames.shape[2]
        drawn = image[: factor * frames.shape[1] : factor, ::factor].astype(int)
        heat = np.maximum(explain.activations(model.head, maps[: len(maps) // len(views)], 3), 0)
        mixed = 2 * drawn - np.concatenate(list(frames), 1).mean(2, keepdims=True)  # the colors alone, to 2
        hottest = np.concatenate(list(heat), 1)
        if hottest.max() > 0:
            row, column = np.unravel_index(hottest.argmax(), hottest.shape)
            step = frames.shape[1] // heat.shape[1]
            place = mixed[row * step + step // 2, column * step + step // 2]
            assert np.abs(place - explain.colors()[255]).max() < 40, place


def test_an_activation_map_by_hand():
    maps = np.array([[[[1.0, 2.0]], [[3.0, -1.0]]]])  # (1, 2, 1, 2)
    head = {"fc.weight": np.array([[1.0, 1.0], [2.0, -1.0]]), "fc.bias": np.array([0.0, 0.5])}
    np.testing.assert_allclose(explain.activations(head, maps, 1), [[[2 - 3 + 0.5, 4 + 1 + 0.5]]])
    assert Sample({"image": np.zeros((1, 2, 2, 3))}).shapes == (None, (1, 2, 2, 3))


def test_probabilities_of_scenes(scene_model, tmp_path, capsys):
    """Class maps are the same with and without, also of videos; the map of a class is highest where it is."""
    image, _ = scene(7)
    Image.fromarray(image).save(tmp_path / "a.png")
    words = [tmp_path / "a.png", "--weights", scene_model[0]]
    _, plain, _, _ = run_predict(capsys, tmp_path / "plain", *words)
    _, drawn, _, _ = run_predict(capsys, tmp_path / "drawn", *words, "--explain", CLASSES[0])
    labels = [np.asarray(Image.open(each["files"][0]["written"]["labels"])) for each in (plain, drawn)]
    assert np.array_equal(*labels) and 0 < (labels[0] == 0).mean() < 1
    written = np.asarray(Image.open(drawn["files"][0]["written"]["explanation"]))
    height, width = image.shape[:2]
    factor = -(-overlay.MIN_CAPTION_WIDTH // width)
    colors = 2.0 * written[: factor * height : factor, ::factor] - image.mean(2, keepdims=True)
    to_high, to_low = (np.abs(colors - explain.colors()[value]).sum(2) for value in (255, 0))
    assert ((to_high < to_low) == (labels[0] == 0)).mean() > 0.8


@pytest.mark.parametrize(
    "words, message",
    [
        (["--explain", "nothing"], "--explain: nothing is none of the classes (circle"),
        (["--explain", "--weights", "{exported}"], "--explain: is for files, and for checkpoints of classes"),
    ],
)
def test_explanations_that_are_impossible(image_model, photos, words, message, tmp_path, capsys):
    words = [word.format(exported=tmp_path / "a.onnx") for word in words]
    export(image_model[0], tmp_path / "a.onnx")
    assert call_zoo("predict", photos, "--weights", image_model[0], *words) == 2
    assert message.partition("(")[0] in capsys.readouterr().err
    with pytest.raises(zoo.UserError, match="gives no features: load the checkpoint"):
        zoo.load(tmp_path / "a.onnx").features(str(photos / "0.jpg"))


def test_files_by_address(image_model, photos, tmp_path, capsys):
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(photos))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        files = [f"{address}/0.jpg?token=secret", f"{address}/lost.jpg", photos / "1.jpg", f"{HIDDEN}/2.jpg"]
        code, record, lines, errors = run_predict(
            capsys, tmp_path / "out", *files, "--weights", image_model[0], "--csv"
        )
        words = [*files[:3], f"{HIDDEN}/2.jpg?id=1", "--weights", image_model[0], "--out", tmp_path / "out"]
        assert call_zoo("predict", *words) == 2 and "holds predictions of other files" in capsys.readouterr().err
        results = zoo.load(image_model[0]).predict([files[0], files[2]])
        with pytest.raises(zoo.UserError, match="lost.jpg: cannot be downloaded .HTTP Error 404"):
            zoo.load(image_model[0]).predict(files)
        server.shutdown()
        thread.join()
    assert code == 1 and "lost.jpg: cannot be downloaded (HTTP Error 404" in errors
    shown = [
        f"{address}/0.jpg?sha256={sha256(b'?token=secret').hexdigest()[:8]}",
        *map(str, files[1:3]),
        "https://h/2.jpg",
    ]
    assert [row["file"] for row in record["files"]] == shown
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert not any("secret" in text for text in (*lines, errors, *written))
    for row, result in zip((record["files"][0], record["files"][2]), results, strict=True):
        assert list(by_name(row)) == list(result.labels[:5])


def test_folders_and_images_of_pillow_in_a_program(image_model, scene_model, photos, tmp_path):
    """They give what their files give, turned upright where files are."""
    (photos / "3b.jpg").unlink()
    turned = Image.Exif()
    turned[0x0112] = 6
    corner = np.zeros((24, 30, 3), np.uint8)
    corner[:9, :9] = 255  # so that it matters how it is turned
    Image.fromarray(corner).save(photos / "turned.jpg", exif=turned, quality=100)
    model, names = zoo.load(image_model[0]), sorted(path.name for path in photos.iterdir())
    expected = model.predict([photos / name for name in names], batch=2, workers=0)
    for found in (
        model.predict(photos),
        model.predict([str(photos)]),
        [model.predict(Image.open(photos / n)) for n in names],
    ):
        for name, result, other in zip(names, found, expected, strict=True):
            assert result.labels == other.labels
            rounding = 2e-4 if name == "turned.jpg" else 1e-6  # files are resized before they are turned
            np.testing.assert_allclose(result.probabilities, other.probabilities, atol=rounding)
    unturned = model.predict(np.asarray(Image.open(photos / "turned.jpg")))
    assert np.abs(unturned.probabilities - expected[-1].probabilities).max() > 1e-3
    with pytest.raises(zoo.UserError, match="batch: expected auto or a number"):
        model.predict(photos, batch=0)
    Image.effect_noise((64, 64), 50).save(tmp_path / "noise.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "noise.jpg").read_bytes()[:1500])
    with pytest.raises(zoo.UserError, match="an image of Pillow cannot be decoded as an image"):
        model.predict(Image.open(tmp_path / "cut.jpg"))
    scenes = zoo.load(scene_model[0])
    path = Path(photos / "turned.jpg")
    stored = scenes.predict(path)
    assert np.array_equal(scenes.predict(Image.open(path)).class_map, stored.class_map)
    with pytest.raises(zoo.UserError, match="is a video of scenes, which has no features"):
        scenes.features(np.zeros((2, 32, 32, 3), np.uint8))
