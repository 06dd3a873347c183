"""predict.py says of a file what an evaluation says of it, and draws it so that a person can read it."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from data.datasets import cityscapes, imagenet, kinetics
from data.demo import motion, shapes
from data.errors import BadSample, UserError
from data.formats import palette
from data.stream import open_evaluation
from tests.helpers import clips as encoded
from tests.helpers.paths import ROOT
from tools import predict
from zoo.predict import overlay
from zoo.run import cli, restore
from zoo.run.checkpoint import load_checkpoint, save_checkpoint
from zoo.run.evaluate import evaluate
from zoo.run.job import assemble, join

CLASSES = ("grass", "water", "köln")
COLOURS = np.array([[60, 150, 50], [40, 60, 190], [200, 120, 40]])
COMMON = {"device": "cpu", "data.workers": 0, "train.batch": 4, "train.eval_batch": 3}
PICTURES = {"model.width": 4, "data.size": 16, "data.train_images": 16, "data.val_images": 8}
CLIPS = {"model.width": 4, "data.size": 16, "data.segments": 2, "data.train_clips": 16, "data.val_clips": 8}
SCENES = {
    "model.depth": 18,
    "model.width": 8,
    "model.head_width": 8,
    "model.low_width": 4,
    "model.aux_width": 4,
    "model.rates": [1, 2, 3],
    "model.pretrained": "null",
    "data.crop": [32, 32],
    "data.base_size": [40, 64],
    "train.sync_bn": "false",
    "train.steps": 60,
    "train.eval_every": "60 steps",
    "train.save_every": "60 steps",
    "optim.lr": 0.5,
    "data.photometric": "false",
    "train.eval_batch": 1,
}  # pictures of several sizes


def program(*words, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def trained(folder, config, root, settings, *words):
    """A checkpoint of a run of a few steps: the path of its folder."""
    pairs = [
        word for key, value in {**COMMON, **settings, "data.root": root}.items() for word in ("-o", f"{key}={value}")
    ]
    done = program(ROOT / "train.py", "-c", ROOT / "configs" / config, "--out", folder / "tiny", *pairs, *words)
    assert done.returncode == 0, done.stderr
    return str(folder / "tiny/checkpoints/last")


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory):
    """(checkpoint of a ResNet, folder of its data)."""
    folder = tmp_path_factory.mktemp("pictures")
    shapes.make(str(folder / "set"), 16, 8)
    return trained(folder, "resnet50_demo.yaml", folder / "set", PICTURES, "--max-steps", 3), folder / "set"


@pytest.fixture(scope="module")
def of_clips(tmp_path_factory):
    """(checkpoint of a TSM, folder of its data)."""
    folder = tmp_path_factory.mktemp("clips")
    motion.make(str(folder / "set"), 16, 8)
    return trained(folder, "tsm_demo.yaml", folder / "set", CLIPS, "--max-steps", 3), folder / "set"


def scene(number):
    """A picture of blocks in the colours of their classes, of a size of its own, and its mask."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, len(CLASSES), (3, 4)).repeat(14 + number, 0).repeat(15, 1).astype(np.uint8)
    picture = np.clip(COLOURS[labels] + rng.normal(0, 12, (*labels.shape, 3)), 0, 255).astype(np.uint8)
    labels[:4] = 255
    return picture, labels


@pytest.fixture(scope="module")
def of_scenes(tmp_path_factory):
    """(checkpoint of a DeepLabV3+, folder of its data)."""
    folder = tmp_path_factory.mktemp("scenes")
    for split, numbers in (("train", range(6)), ("val", range(6, 9))):
        for number in numbers:
            for kind, array in zip(("images", "masks"), scene(number)):
                (folder / "set" / kind / split).mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(folder / "set" / kind / split / f"{number}.png")
    (folder / "set/classes.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    return trained(folder, "deeplabv3plus_cityscapes.yaml", folder / "set", SCENES), folder / "set"


evaluating = []  # not empty while the evaluation that predict.py is compared with loads its data


@pytest.fixture(autouse=True)
def no_data_set(monkeypatch):
    """Nothing else may load the data that a checkpoint was trained on."""
    for module in (imagenet, kinetics, motion, shapes, cityscapes):
        monkeypatch.setattr(
            module,
            "load",
            lambda settings, load=module.load: (
                load(settings) if evaluating else pytest.fail("predict.py loads a data set")
            ),
        )


def evaluated(weights, *changes):
    """What an evaluation by train.py gives its metric: name of the sample -> the output for its rows."""
    words = ["-c", os.path.join(weights, "../../config.yaml"), "--weights", weights]
    evaluating.append(True)
    request = cli.read(cli.parse(words + [word for change in changes for word in ("-o", change)]))
    job = assemble(request, join(request, {}))
    evaluating.clear()
    restore.restore(request.config, job, None, lambda line: None)
    rows = []

    class Record:
        state = {}

        def update(self, output, batch):
            rows.extend(output.reshape(len(batch["valid"]), -1, *output.shape[1:])[batch["valid"] > 0])

        def result(self, state):
            return {}

    stream = open_evaluation(job.val_set, request.config.seed, 1 if job.task.PRIMARY == "miou" else 3)
    evaluate(job.trainer, stream, job.val_set, Record(), job.group, pytest.fail)
    root = request.config.data.root
    return {os.path.join(root, job.val_set.name(index)): row for index, row in enumerate(rows)}


def run(capsys, out, *words):
    """The exit code, predictions.json, the lines on the screen but the last one, and the errors."""
    code = predict.main([*map(str, words), "--out", str(out), "--device", "cpu"])
    said, errors = capsys.readouterr()
    record = json.loads((out / predict.RESULTS).read_text(encoding="utf-8")) if out.exists() else None
    return code, record, said.splitlines()[:-1], errors


def probabilities(scores):
    """(views, K) logits to (K,) probabilities."""
    powers = np.exp(scores.astype(np.float64).mean(0))
    return powers / powers.sum()


def test_pictures_as_an_evaluation_sees_them(of_pictures, tmp_path, capsys):
    weights, root = of_pictures
    code, record, lines, errors = run(capsys, tmp_path / "out", root / "val", "--weights", weights, "--top", 2)
    assert (code, errors, record["classes"], record["step"]) == (0, "", list(shapes.CLASSES), 3)
    expected = evaluated(weights)
    assert len(expected) == 8 and [row["file"] for row in record["files"]] == sorted(expected)
    for row, line in zip(record["files"], lines):
        chances = probabilities(expected[row["file"]])
        np.testing.assert_allclose(row["probabilities"], chances, rtol=1e-5)
        best = sorted(range(8), key=lambda label: -chances[label])[:2]
        assert row["top"] == [shapes.CLASSES[label] for label in best]
        assert line == f"{row['file']}: " + ", ".join(f"{shapes.CLASSES[k]} {chances[k]:.3f}" for k in best)


@pytest.mark.parametrize(
    "changes",
    [(), ("data.eval_crops=3", "data.eval_size=18", "data.eval_sampling=twice")],
    ids=["one view", "six views"],
)
def test_clips_as_an_evaluation_sees_them(of_clips, changes, tmp_path, capsys):
    weights, root = of_clips
    words = [word for change in changes for word in ("-o", change)]
    code, record, lines, _ = run(capsys, tmp_path / "out", root / "val", "--weights", weights, *words)
    assert code == 0 and len(lines) == 8 and all(line.count(", ") == predict.TOP - 1 for line in lines)
    expected = evaluated(weights, *changes)
    assert {len(scores) for scores in expected.values()} == {6 if changes else 1}
    for row in record["files"]:
        np.testing.assert_allclose(row["probabilities"], probabilities(expected[row["file"]]), rtol=1e-5)


def test_folders_of_frames_are_clips(of_clips, tmp_path, capsys):
    """Beside videos, in any folder; frames that need no rounding to be the same as a lossless video's."""
    frames = encoded.numbered(9, 32, 32)
    for index, frame in enumerate(frames, 1):
        (tmp_path / "in/b").mkdir(parents=True, exist_ok=True)
        Image.fromarray(frame).save(tmp_path / f"in/b/f_{index:03d}.png")
    encoded.encode(tmp_path / "in/a.mp4", frames, qp="0", pix_fmt="yuv444p")
    code, record, _, _ = run(
        capsys, tmp_path / "out", tmp_path / "in", "--weights", of_clips[0], "-o", "data.frame_template=f_{:03d}.png"
    )
    assert code == 0 and [Path(row["file"]).name for row in record["files"]] == ["a.mp4", "b"]
    video, folder = (row["probabilities"] for row in record["files"])
    np.testing.assert_allclose(video, folder, atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [(), ("data.eval_scales=[1.0, 0.5]", "task.flip=true"), ("data.base_size=null",)],
    ids=["as trained", "scales and mirrored", "own size"],
)
def test_class_maps_as_an_evaluation_makes_them(of_scenes, changes, tmp_path, capsys):
    weights, root = of_scenes
    words = [word for change in changes for word in ("-o", change)]
    code, record, lines, _ = run(capsys, tmp_path / "out", root / "images/val", "--weights", weights, *words)
    expected = evaluated(weights, *changes)
    assert code == 0 and [row["file"] for row in record["files"]] == sorted(expected)
    for row, line in zip(record["files"], lines):
        labels = np.asarray(Image.open(row["written"]["labels"]))
        assert labels.shape == Image.open(row["file"]).size[::-1] and np.array_equal(labels, expected[row["file"]][0])
        shares = np.bincount(labels.ravel(), minlength=3) / labels.size
        np.testing.assert_allclose(row["shares"], shares)
        assert line.startswith(f"{row['file']}: {CLASSES[shares.argmax()]} {100 * shares.max():.1f} %")
        assert line.count(" %") == (shares > 0).sum()
    assert any(min(row["shares"][:2]) > 0 for row in record["files"])  # or all this would say little


def test_what_is_drawn_of_a_picture(of_scenes, tmp_path, capsys):
    weights, root = of_scenes
    path = root / "images/val/7.png"
    _, record, _, _ = run(capsys, tmp_path / "out", path, "--weights", weights)
    assert sorted(os.listdir(tmp_path / "out")) == ["7_classes.png", "7_labels.png", "7_overlay.png", predict.RESULTS]
    drawn = {way: Image.open(name) for way, name in record["files"][0]["written"].items()}
    colours, labels = palette.class_colors(CLASSES), np.asarray(drawn["labels"])
    assert drawn["labels"].mode == "P" and drawn["classes"].mode == "RGB"
    assert np.array_equal(drawn["labels"].convert("RGB"), colours[labels])
    assert np.array_equal(drawn["classes"], colours[labels])
    overlay = np.asarray(drawn["overlay"])
    height, width = (8 * side for side in labels.shape)  # 60 pixels wide: enlarged to be seen
    inside = overlay[:height:8, :width:8]
    assert np.array_equal(inside, (np.asarray(Image.open(path), np.int64) + colours[labels]) // 2)
    strip = np.concatenate([overlay[height:].reshape(-1, 3), overlay[:height, width:].reshape(-1, 3)])
    for label, colour in enumerate(colours):
        assert (strip == colour).all(1).any() == (label in labels)


def test_videos_of_scenes(of_scenes, tmp_path, capsys):
    """Every frame, at its own speed; odd sides, as the encoder wants none; lossless, so that the frames are known."""
    frames = np.stack([scene(1)[0][:41, shift : shift + 51] for shift in range(5)])
    encoded.encode(tmp_path / "a.mkv", frames, rate=12, codec="libx264", pix_fmt="yuv444p", qp="0")
    code, record, lines, _ = run(capsys, tmp_path / "out", tmp_path / "a.mkv", "--weights", of_scenes[0], "--top", 1)
    row = record["files"][0]
    assert code == 0 and row["frames"] == 5 and lines[0].count("%") == 1
    assert sorted(os.listdir(tmp_path / "out")) == ["a_overlay.mp4", predict.RESULTS]
    with av.open(row["written"]["overlay"]) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 12 and stream.codec_context.name == "h264"
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(shown) == 5 and all(side % 2 == 0 for side in shown[0].shape[:2])
    for number, (pixels, _) in enumerate(overlay.read_video(str(tmp_path / "a.mkv"))):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    _, pictures, _, _ = run(
        capsys, tmp_path / "out2", *(tmp_path / f"{number}.png" for number in range(5)), "--weights", of_scenes[0]
    )
    np.testing.assert_allclose(row["shares"], np.mean([each["shares"] for each in pictures["files"]], 0))
    still = np.asarray(Image.open(pictures["files"][3]["written"]["overlay"]), float)[:410, :510]
    assert np.abs(still - shown[3][:410, :510]).mean() < 8  # but for the encoder's losses


def test_as_a_program(of_pictures, tmp_path, monkeypatch, capsys):
    """Without the data it was trained on; what cannot be read is named and skipped, and nothing is overwritten."""
    weights, root = of_pictures
    here = tmp_path / "elsewhere"
    shutil.copytree(Path(weights).resolve().parents[1], here / "runs/tiny", symlinks=True)
    for number, source in enumerate(sorted((root / "val").rglob("*.JPEG"))[:2]):
        shutil.copy(source, here / f"{number}.jpg")
    recipe = here / "runs/tiny/checkpoints/last/checkpoint.json"
    recipe.write_text(recipe.read_text().replace(str(root), "/nowhere"))
    (here / "broken.jpg").write_bytes((here / "0.jpg").read_bytes()[:300])
    (here / "empty").mkdir()
    words = [
        ROOT / "tools/predict.py",
        "0.jpg",
        "broken.jpg",
        "lost.jpg",
        "empty",
        "1.jpg",
        "--weights",
        "runs/tiny/checkpoints/best",
    ]
    done = program(*words, "--device", "cpu", cwd=here)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [
        "0.jpg",
        "1.jpg",
        "results are in predictions/tiny",
    ]
    for name, why in (("broken.jpg", "cannot be decoded"), ("lost.jpg", "no such file"), ("empty", "nothing in this")):
        assert f"error: {name}: {why}" in done.stderr
    record = json.loads((here / "predictions/tiny" / predict.RESULTS).read_text())
    assert {row["file"]: "error" in row for row in record["files"]} == {
        "0.jpg": False,
        "1.jpg": False,
        "broken.jpg": True,
        "lost.jpg": True,
        "empty": True,
    }
    monkeypatch.chdir(here)
    assert predict.main(["0.jpg", "--weights", "runs/tiny/checkpoints/best", "--device", "cpu"]) == 0
    assert "results are in predictions/tiny-2" in capsys.readouterr().out


@pytest.mark.parametrize("framework", ["paddle", "mindspore"])
def test_the_same_in_another_framework(of_pictures, framework, tmp_path, capsys):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    weights, root = of_pictures
    _, here, _, _ = run(capsys, tmp_path / "torch", root / "val", "--weights", weights)
    done = program(
        ROOT / "tools/predict.py",
        root / "val",
        "--weights",
        weights,
        "--framework",
        framework,
        "--device",
        "cpu",
        "--out",
        tmp_path / "other",
    )
    assert done.returncode == 0, done.stderr
    there = json.loads((tmp_path / "other" / predict.RESULTS).read_text())
    assert there["framework"] == framework and here["framework"] == "torch"
    for one, other in zip(here["files"], there["files"]):
        assert one["file"] == other["file"]
        np.testing.assert_allclose(one["probabilities"], other["probabilities"], atol=1e-5)


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["--weights", "{run}"],
            "has no checkpoint.json, which tells the recipe and the class names; give the folder of a "
            "checkpoint, such as {run}/checkpoints/best",
        ),
        (["--weights", "{weights}/model.safetensors"], "such as {weights}"),
        (["--weights", "nowhere"], "such as runs/tsm_demo/checkpoints/best"),
        (["--weights", "{weights}", "--top", "0"], "--top: must be at least 1"),
        (["--weights", "{weights}", "--out", "{run}"], "exists already and is not overwritten"),
        (["--weights", "{weights}", "--out", "{run}/config.yaml"], "exists already and is not overwritten"),
        (["--weights", "{weights}", "--out", "{run}/config.yaml/below"], "below: Not a directory"),
        (["--weights", "{weights}", "-o", "data.sise=3"], "did you mean data.size?"),
        (["--weights", "{weights}", "-o", "model.width=8"], "does not fit this net"),
        (["--weights", "{weights}", "--device", "cuda:99"], "there is no cuda:99 here"),
    ],
)
def test_mistakes_end_in_one_message(of_pictures, words, said, tmp_path, monkeypatch, capsys):
    weights, root = of_pictures
    names = {"weights": weights, "run": weights[: weights.index("/checkpoints")]}
    monkeypatch.chdir(tmp_path)
    assert predict.main([str(root / "val"), *(word.format(**names) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and said.format(**names) in err and out == "" and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda record: record.pop("recipe"), "does not tell the recipe and the classes"),
        (lambda record: record.update(recipe="a: [1"), "does not tell the recipe and the classes"),
        (lambda record: record.update(classes=None), "does not tell the recipe and the classes"),
        (
            lambda record: record.update(recipe=record["recipe"].replace(" width:", " wodth:")),
            "did you mean model.width?",
        ),
        (lambda record: record.update(files=3), "not a readable checkpoint"),
    ],
)
def test_a_spoilt_checkpoint(of_pictures, change, said, tmp_path, capsys):
    shutil.copytree(os.path.realpath(of_pictures[0]), tmp_path / "spoilt")
    record = json.loads((tmp_path / "spoilt/checkpoint.json").read_text())
    change(record)
    (tmp_path / "spoilt/checkpoint.json").write_text(json.dumps(record))
    assert predict.main([str(of_pictures[1]), "--weights", str(tmp_path / "spoilt")]) == 2
    assert said in capsys.readouterr().err


def test_weights_that_are_no_numbers(of_pictures, tmp_path, capsys):
    tensors, record = load_checkpoint(of_pictures[0])
    tensors["fc.bias"][2] = np.nan
    weights = save_checkpoint(str(tmp_path / "run"), 9, tensors, record, 1)
    code, record, lines, errors = run(capsys, tmp_path / "out", of_pictures[1] / "val/disc", "--weights", weights)
    assert code == 2 and lines == [] and "scores are not finite" in errors
    assert ["error" in row for row in record["files"]] == [True]


def test_nothing_to_read_loads_no_net(of_pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(predict, "build", lambda *_: pytest.fail("the net is built"))
    assert predict.main(["lost.png", "--weights", of_pictures[0], "--out", str(tmp_path / "out")]) == 2
    assert "lost.png: no such file" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_net_of_another_kind_is_not_offered_files():
    with pytest.raises(UserError, match="task verify.*data.imagenet"):
        predict.kind_of("verify", imagenet.Settings())
    with pytest.raises(UserError, match="task classify.*data.cityscapes"):
        predict.kind_of("classify", cityscapes.Settings())


def test_folders_stand_for_what_is_in_them(tmp_path, capsys):
    for name in ("b.PNG", "a/z.jpg", "a/c/d.txt", "a/.hidden.jpg", ".git/e.jpg", "x/img_00001.jpg", "x/img_2.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    endings, here = (".png", ".jpg"), [str(tmp_path), str(tmp_path / "a/c/d.txt"), str(tmp_path / "a/c")]
    found, wrong = predict.find(here, endings, None)
    assert [os.path.relpath(path, tmp_path) for path in found] == [
        "b.PNG",
        "a/z.jpg",
        "x/img_00001.jpg",
        "x/img_2.jpg",
        "a/c/d.txt",
    ]
    assert [row["file"] for row in wrong] == [here[2]] and "ends in .png, .jpg" in capsys.readouterr().err
    found, _ = predict.find(here[:1], (".mp4",), "img_{:05d}.jpg")
    assert found == [str(tmp_path / "x")] and predict.numbered(found[0], "img_{:05d}.jpg") == 2


def test_results_of_files_of_one_name_are_kept_apart():
    assert predict.stems(["a/x.png", "b/x.png", "x-2.png", "c/x.jpg", "y", "a.b.mp4"]) == [
        "x",
        "x-2",
        "x-2-2",
        "x-3",
        "y",
        "a.b",
    ]


def test_a_video_that_breaks_off_leaves_nothing_behind(of_scenes, tmp_path, monkeypatch, capsys):
    """After so many frames that the encoder has begun to write."""
    encoded.encode(tmp_path / "a.mp4", np.stack([scene(1)[0][:40, :52]]))
    (frame,) = overlay.read_video(str(tmp_path / "a.mp4"))

    def broken(path):
        yield from [frame] * 80
        assert any(name.endswith(".part") for name in os.listdir(tmp_path / "out"))
        raise BadSample("cannot be decoded as video (broken)")

    monkeypatch.setattr(overlay, "read_video", broken)
    code, record, _, errors = run(capsys, tmp_path / "out", tmp_path / "a.mp4", "--weights", of_scenes[0])
    assert code == 2 and "a.mp4: cannot be decoded" in errors and "error" in record["files"][0]
    assert os.listdir(tmp_path / "out") == [predict.RESULTS]
