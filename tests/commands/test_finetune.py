"""`zoo finetune` from a folder to a trained model, for every task, and every command of its page."""

import json
import os
import shutil
import signal

import cv2
import numpy as np
import pytest

import zoo
from tests.helpers import clips
from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.test_docs import commands
from zoo.run.session import Run
from zoo.weights import imagenet
from zoo.weights.download import NotDownloaded

pytestmark = pytest.mark.slow
SHORT = ("--epochs", 1, "-o", "train.batch=4", "-o", "train.eval_batch=4")
TINY = (*SHORT, "-o", "model.width=8")
SIZES = {
    "photos": "data.size=32",
    "clips": "data.size=32",
    "tags": "data.size=32",
    "scenes": "data.crop=[32,32]",
    "faces": "model.embedding=8",
}
TASKS = {"photos": "classify", "tags": "multilabel", "clips": "clips", "scenes": "segment", "faces": "faces"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with folders of every task; nothing can be downloaded."""
    rng = np.random.default_rng(0)

    def write(path, pixels):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        cv2.imwrite(path, pixels)

    monkeypatch.chdir(tmp_path)
    for number in range(6):
        for level, name in ((40, "cat"), (200, "dog")):
            write(f"photos/{name}/{number}.jpg", rng.integers(level, level + 40, (40, 48, 3), np.uint8))
            os.makedirs(f"clips/{name}", exist_ok=True)
            clips.encode(f"clips/{name}/{number}.mp4", rng.integers(level, level + 40, (10, 48, 64, 3), np.uint8))
            write(f"tags/{number}-{name}.jpg", rng.integers(level, level + 40, (40, 48, 3), np.uint8))
        write(f"scenes/images/{number}.jpg", rng.integers(0, 256, (48, 64, 3), np.uint8))
        write(f"scenes/masks/{number}.png", np.tile(np.array([0, 1, 2, 255], np.uint8), (48, 16)))
        for person in range(5):
            write(f"faces/p{person}/{number}.png", rng.integers(50 * person, 50 * person + 40, (112, 112, 3), np.uint8))

    rows = (f"{number}-{name},{name}|day\n" for number in range(6) for name in ("cat", "dog"))
    (tmp_path / "tags/labels.csv").write_text("id,tags\n" + "".join(rows))

    def refuse(*_):
        raise NotDownloaded("x.pth cannot be downloaded (no network). Place it as weights/x.pth")

    monkeypatch.setattr(imagenet, "find_weights", refuse)
    return tmp_path


def finetune(name, *words):
    task = ("--task", "faces") if name == "faces" else ()
    return call_zoo("finetune", name, *task, *TINY, "-o", SIZES[name], *words)


def events(run):
    with open(os.path.join(run, "events.jsonl")) as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("name", SIZES)
def test_from_a_folder_to_a_model_and_again_with_its_recipe(here, name, capsys):
    assert finetune(name) == 0
    output, run = capsys.readouterr().out, f"runs/{name}"
    assert output.startswith(f"{name}: {TASKS[name]}: ") and "held out" in output
    assert "\ninitial weights: " in output
    assert f"recipe      {run}.yaml" in output and f"zoo export {run} --out {run}.onnx" in output
    assert os.path.exists(f"{run}/checkpoints/best/model.safetensors")
    begin = next(event for event in events(run) if event["event"] == "begin")
    assert "held_out" in begin["protocol"] and begin["seed"] == 1
    assert call_zoo("train", "-c", f"{run}.yaml") == 0  # in another folder
    again = next(event for event in events(f"{run}-2") if event["event"] == "begin")
    same = ("recipe", "model", "arch", "protocol", "checksum", "steps", "lr", "batch", "precision", "framework")
    assert {key: begin[key] for key in same} == {key: again[key] for key in same}
    losses = [[event["loss"] for event in events(each) if event["event"] == "train"] for each in (run, f"{run}-2")]
    assert losses[0] and losses[0] == losses[1]


def test_predictions_of_several_classes(here, capsys):
    assert finetune("tags", "-o", "train.epochs=2") == 0
    with open("runs/tags/checkpoints/best/evaluation.json") as file:
        limits = json.load(file)["thresholds"]
    assert {*limits} == {"cat", "day", "dog"}
    with open("runs/tags/report.html") as file:
        assert "average precision" in (text := file.read()) and "day" in text
    assert call_zoo("export", "runs/tags", "--out", "tags.onnx", "--with-preprocessing") == 0
    rows = {}
    for weights in ("runs/tags", "tags.onnx"):
        assert (
            call_zoo("predict", "tags", "--weights", weights, "--out", f"of-{weights[-4:]}", "--csv", "--top", 3) == 0
        )
        with open(f"of-{weights[-4:]}/predictions.jsonl") as file:
            rows[weights] = [json.loads(line) for line in file]
    for row, other in zip(*rows.values()):
        shares = {each["label"]: each["probability"] for each in row["predictions"]}
        assert {*row["labels"]} == {name for name, share in shares.items() if share > limits[name]}
        assert other["labels"] == row["labels"]
        assert {each["label"]: each["probability"] for each in other["predictions"]} == pytest.approx(shares, abs=1e-5)
    with open("of-tags/predictions.csv") as file:
        cells = [line.split(",")[1] for line in file.read().splitlines()[1:]]
    assert cells == ["|".join(row["labels"]) for row in rows["runs/tags"]]
    found = zoo.load("runs/tags", device="cpu").predict("tags/0-cat.jpg")
    assert list(found.present) == rows["runs/tags"][0]["labels"] and len(found.labels) == 3
    assert call_zoo("predict", "tags/0-cat.jpg", "--weights", "runs/tags", "--explain", "day", "--out", "why") == 0
    assert os.path.exists("why/0-cat_explanation.png")


def test_a_dry_run_writes_nothing_and_shows_what_a_run_does(here, capsys):
    assert finetune("photos", "--dry-run") == 0
    shown = capsys.readouterr().out.partition("\n\n")[2]
    assert not os.path.exists("runs") and finetune("photos") == 0
    with open("runs/photos.yaml") as file:
        assert file.read() == shown
    assert "root: " + str(here / "photos") in shown and "# -o model.width" in shown and "val_fraction: 0.2" in shown


def test_weights_that_cannot_be_had_are_named(here, capsys):
    assert call_zoo("finetune", "photos", "--dry-run") == 0
    line = "initial weights: x.pth cannot be downloaded (no network). Place it as weights/x.pth to start from it\n"
    assert line in capsys.readouterr().out


def test_a_resume_sees_changed_files(here, capsys):
    assert finetune("photos") == 0
    assert call_zoo("train", "--resume", "runs/photos") == 0 and "nothing to do" in capsys.readouterr().out
    shutil.copy("photos/cat/0.jpg", "photos/cat/copy.jpg")
    assert call_zoo("train", "--resume", "runs/photos") == 2
    message = capsys.readouterr().err
    assert "the data are not those of this run any more" in message and "photos" not in message.split(":")[0]
    assert "1 added: cat/copy.jpg" in message and "removed" not in message  # a copy moves nothing to the other side


def test_names_of_runs(here, capsys):
    assert finetune("photos", "--out", "models/one") == 0 and os.path.exists("models/one.yaml")
    assert finetune("photos", "--out", "models/one") == 2
    assert "out: models/one holds a run already" in capsys.readouterr().err
    os.makedirs("runs/photos-2")
    open("runs/photos.yaml", "w").close()
    assert finetune("photos", "--dry-run") == 0 and finetune("photos") == 0
    assert os.path.exists("runs/photos-3/events.jsonl") and os.path.getsize("runs/photos.yaml") == 0


def test_weights_of_a_run(here, capsys):
    assert finetune("photos") == 0
    os.rename("photos/cat", "photos/cow")
    capsys.readouterr()
    assert call_zoo("finetune", "photos", *SHORT, "--weights", "runs/photos", "--out", "next") == 0
    output = capsys.readouterr().out
    assert "the run starts from runs/photos" in output and "learning rate 0.0002" in output
    with open("next.yaml") as file:
        text = file.read()
    assert "width: 8" in text and "size: 32" in text and f"weights: {here}/runs/photos" in text
    assert call_zoo("finetune", "clips", *SHORT, "--weights", "runs/photos", "--dry-run") == 2
    assert "runs/photos holds the model resnet, which is not for the task clips" in capsys.readouterr().err


def test_the_current_folder_gets_no_run_in_it(here, monkeypatch, capsys):
    monkeypatch.chdir(here / "photos")
    assert call_zoo("finetune", ".", *TINY, "-o", SIZES["photos"]) == 0
    assert "folder      ../runs/photos\n" in capsys.readouterr().out and sorted(os.listdir()) == ["cat", "dog"]


def test_a_run_that_cannot_start_leaves_its_name_free(here):
    os.makedirs("photos/cow")
    assert finetune("photos") == 2 and not os.listdir("runs")
    os.rmdir("photos/cow")
    assert finetune("photos") == 0 and os.path.exists("runs/photos/checkpoints")


def test_an_interrupted_run_names_the_command_that_goes_on(here, monkeypatch, capsys):
    poll = Run.poll
    monkeypatch.setattr(Run, "poll", lambda run, *words: (signal.raise_signal(signal.SIGTERM), poll(run, *words))[1])
    monkeypatch.setattr("sys.argv", ["zoo", "finetune", "photos"])
    assert finetune("photos", "-o", "train.save_every=1 steps") == 143
    monkeypatch.setattr(Run, "poll", poll)
    line = "go on with  zoo train --resume "
    command = next(each for each in capsys.readouterr().out.splitlines() if each.startswith(line)).removeprefix(line)
    assert call_zoo("train", "--resume", command) == 0
    assert "page        runs/photos/report.html\n" in capsys.readouterr().out
    os.remove("runs/photos/report.html")
    assert call_zoo("train", "--resume", command) == 0 and os.path.exists("runs/photos/report.html")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--epochs", "0"], "argument --epochs: expected a whole number of at least 1, got '0'"),
        (["-o", "model.deth=50"], "unknown key for model.name=resnet; did you mean model.depth?"),
        (["-o", "data.val_fraction=0.9"], "val_fraction: must be above 0 and at most 0.5"),
        (["--weights", "nowhere"], "nowhere"),
    ],
)
def test_errors_of_the_command_line(here, capsys, words, message):
    assert finetune("photos", *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not os.path.exists("runs/photos/checkpoints")


def test_every_command_of_the_page(here):
    with open(os.path.join(ROOT, "docs/getting-started.md"), encoding="utf-8") as file:
        section = file.read().partition("## Train on your own files")[2].partition("\n## ")[0]
    found = [command for command in commands(section) if command.arguments]
    assert {name for name, _ in found} == {"finetune", "train", "predict", "export"} and len(found) == 10
    for name, words in found:
        extra = (*TINY, "-o", SIZES[words[0]]) if name == "finetune" else ()
        if "--weights" in words and name == "finetune":  # which decide the width
            extra = SHORT
        assert call_zoo(name, *words, *extra) == 0, (name, words)
