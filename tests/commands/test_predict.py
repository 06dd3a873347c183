"""tools/predict.py predicts what an evaluation computes, and draws it."""

import os
import shutil
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from tests.helpers import clips as encoded
from tests.helpers.cli import call_zoo
from tests.helpers.predicting import CLASSES, by_name, evaluation_outputs, read_results, run_predict, scene
from zoo.data.demo import motion, shapes
from zoo.predict import output, overlay
from zoo.predict.results import DEFAULT_TOP

pytestmark = pytest.mark.usefixtures("no_datasets")


def probabilities(scores):
    """Compute probabilities (K,) from the logits (views, K)."""
    powers = np.exp(scores.astype(np.float64).mean(0))
    return powers / powers.sum()


def test_images_as_in_an_evaluation(image_model, tmp_path, capsys):
    weights, root = image_model
    code, record, lines, errors = run_predict(capsys, tmp_path / "out", root / "val", "--weights", weights, "--top", 8)
    assert (code, errors, record["classes"], record["step"]) == (0, "", list(shapes.CLASSES), 3)
    expected = evaluation_outputs(weights)
    assert len(expected) == 8 and [row["file"] for row in record["files"]] == sorted(expected)
    for row, line in zip(record["files"], lines):
        reference = probabilities(expected[row["file"]])
        found = by_name(row)
        np.testing.assert_allclose([found[name] for name in shapes.CLASSES], reference, rtol=1e-5)
        assert line == f"{row['file']}: " + ", ".join(f"{name} {share:.3f}" for name, share in found.items())


@pytest.mark.parametrize(
    "changes",
    [(), ("data.eval_crops=3", "data.eval_size=18", "data.eval_sampling=twice")],
    ids=["one view", "six views"],
)
def test_clips_as_in_an_evaluation(clip_model, changes, tmp_path, capsys):
    weights, root = clip_model
    words = [word for change in changes for word in ("-o", change)]
    code, record, lines, _ = run_predict(capsys, tmp_path / "out", root / "val", "--weights", weights, *words)
    assert code == 0 and len(lines) == 8 and all(line.count(", ") == DEFAULT_TOP - 1 for line in lines)
    expected = evaluation_outputs(weights, *changes)
    assert {len(scores) for scores in expected.values()} == {6 if changes else 1}
    for row in record["files"]:
        reference = dict(zip(motion.CLASSES, probabilities(expected[row["file"]])))
        for name, share in by_name(row).items():
            np.testing.assert_allclose(share, reference[name], rtol=1e-5)


def test_folders_of_frames_are_clips(clip_model, tmp_path, capsys):
    """Beside videos, in any folder; the frames are the same as those of a lossless video but for rounding."""
    frames = encoded.numbered(9, 32, 32)
    for index, frame in enumerate(frames, 1):
        (tmp_path / "in/b").mkdir(parents=True, exist_ok=True)
        Image.fromarray(frame).save(tmp_path / f"in/b/f_{index:03d}.png")
    encoded.encode(tmp_path / "in/a.mp4", frames, qp="0", pix_fmt="yuv444p")
    code, record, _, _ = run_predict(
        capsys, tmp_path / "out", tmp_path / "in", "--weights", clip_model[0], "-o", "data.frame_template=f_{:03d}.png"
    )
    assert code == 0 and [Path(row["file"]).name for row in record["files"]] == ["a.mp4", "b"]
    video, folder = map(by_name, record["files"])
    np.testing.assert_allclose([video[name] for name in folder], list(folder.values()), atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [(), ("data.eval_scales=[1.0, 0.5]", "task.flip=true"), ("data.base_size=null",)],
    ids=["as trained", "scales and mirrored", "own size"],
)
def test_class_maps_as_in_an_evaluation(scene_model, changes, tmp_path, capsys):
    weights, root = scene_model
    words = [word for change in changes for word in ("-o", change)]
    code, record, lines, _ = run_predict(capsys, tmp_path / "out", root / "images/val", "--weights", weights, *words)
    expected = evaluation_outputs(weights, *changes)
    assert code == 0 and [row["file"] for row in record["files"]] == sorted(expected)
    for row, line in zip(record["files"], lines):
        labels = np.asarray(Image.open(row["written"]["labels"]))
        assert labels.shape == Image.open(row["file"]).size[::-1] and np.array_equal(labels, expected[row["file"]][0])
        shares = np.bincount(labels.ravel(), minlength=3) / labels.size
        found = by_name(row, "shares", "share")
        np.testing.assert_allclose([found.get(name, 0) for name in CLASSES], shares)
        assert line.startswith(f"{row['file']}: {CLASSES[shares.argmax()]} {100 * shares.max():.1f} %")
        assert line.count(" %") == (shares > 0).sum()
    assert any(len(row["shares"]) > 1 for row in record["files"])  # else this would test little


def test_videos_of_scenes(scene_model, tmp_path, capsys):
    """Every frame, at its own rate; odd sides, which the encoder refuses; lossless, so that the frames are known."""
    frames = np.stack([scene(1)[0][:41, shift : shift + 51] for shift in range(5)])
    encoded.encode(tmp_path / "a.mkv", frames, rate=12, codec="libx264", pix_fmt="yuv444p", qp="0")
    code, record, lines, _ = run_predict(
        capsys, tmp_path / "out", tmp_path / "a.mkv", "--weights", scene_model[0], "--top", 1
    )
    row = record["files"][0]
    assert code == 0 and row["frames"] == 5 and lines[0].count("%") == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["a_overlay.mp4", output.ORIGIN, output.ROWS]
    with av.open(row["written"]["overlay"]) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 12 and stream.codec_context.name == "h264"
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(shown) == 5 and all(side % 2 == 0 for side in shown[0].shape[:2])
    for number, (pixels, _) in enumerate(overlay.read_video(str(tmp_path / "a.mkv"))):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    _, images, _, _ = run_predict(
        capsys, tmp_path / "out2", *(tmp_path / f"{number}.png" for number in range(5)), "--weights", scene_model[0]
    )
    found, stills = by_name(row, "shares", "share"), [by_name(each, "shares", "share") for each in images["files"]]
    for name in CLASSES:
        np.testing.assert_allclose(found.get(name, 0), np.mean([each.get(name, 0) for each in stills]))
    still = np.asarray(Image.open(images["files"][3]["written"]["overlay"]), float)[:410, :510]
    assert np.abs(still - shown[3][:410, :510]).mean() < 8  # the encoder is lossy


def test_unreadable_files_are_skipped_and_nothing_is_overwritten(image_model, tmp_path, monkeypatch, capsys):
    """In another folder, without the data it was trained on."""
    weights, root = image_model
    here = tmp_path / "elsewhere"
    shutil.copytree(Path(weights).resolve().parents[1], here / "runs/tiny", symlinks=True)
    for number, source in enumerate(sorted((root / "val").rglob("*.JPEG"))[:2]):
        shutil.copy(source, here / f"{number}.jpg")
    recipe = here / "runs/tiny/checkpoints/last/checkpoint.json"
    recipe.write_text(recipe.read_text().replace(str(root), "/nowhere"))
    (here / "broken.jpg").write_bytes((here / "0.jpg").read_bytes()[:300])
    (here / "empty").mkdir()
    (here / "phone").mkdir()
    (here / "phone/1.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    monkeypatch.chdir(here)
    files = ["0.jpg", "broken.jpg", "lost.jpg", "empty", "phone", "1.jpg"]
    assert call_zoo("predict", *files, "--weights", "runs/tiny/checkpoints/best", "--device", "cpu") == 1
    out, errors = capsys.readouterr()
    assert [line.split(": ")[0] for line in out.splitlines()] == [
        "0.jpg",
        "1.jpg",
        "results are in predictions/tiny",
    ]
    reasons = {
        "broken.jpg": "cannot be decoded",
        "lost.jpg": "no such file",
        "empty": "nothing in this",
        "phone/1.HEIC": "not an image of a supported format",
    }
    for name, why in reasons.items():
        assert f"error: {name}: {why}" in errors
    rows = read_results(here / "predictions/tiny")["files"]
    assert [(row["file"], "error" in row) for row in rows] == [
        ("0.jpg", False),
        *((name, True) for name in reasons),
        ("1.jpg", False),
    ]
    assert call_zoo("predict", "0.jpg", "--weights", "runs/tiny", "--device", "cpu") == 0
    assert "results are in predictions/tiny-2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--weights", "{run}/checkpoints"],
            "has no checkpoint.json, which holds the recipe and the class names; give",
        ),
        (["--weights", "{weights}/model.safetensors"], "such as {weights}"),
        (["--weights", "nowhere"], "nowhere: there is no such file or folder of weights; zoo weights list shows"),
        (["--weights", "{weights}", "--top", "0"], "argument --top: expected a whole number of at least 1, got '0'"),
        (["--weights", "{weights}", "--out", "{run}"], "exists already and is not overwritten"),
        (["--weights", "{weights}", "--out", "{run}/config.yaml"], "exists already and is not overwritten"),
        (["--weights", "{weights}", "--out", "{run}/config.yaml/below"], "below: Not a directory"),
        (["--weights", "{weights}", "-o", "data.sise=3"], "did you mean data.size?"),
        (["--weights", "{weights}", "-o", "model.width=8"], "does not match this model"),
        (["--weights", "{weights}", "--device", "cuda:99"], "there is no cuda:99 here"),
    ],
)
def test_errors_are_one_message(image_model, words, message, tmp_path, monkeypatch, capsys):
    weights, root = image_model
    names = {"weights": weights, "run": weights[: weights.index("/checkpoints")]}
    monkeypatch.chdir(tmp_path)
    assert call_zoo("predict", str(root / "val"), *(word.format(**names) for word in words)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and message.format(**names) in err and out == "" and os.listdir(tmp_path) == []
