"""What people do to runs: copy, move, rename and delete them, resume them twice, lose a part of them."""

import itertools
import json
import os
import pkgutil
import shutil
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.helpers.cli import call_zoo
from tests.helpers.training import events
from zoo import program
from zoo.logs import journal
from zoo.run import trained
from zoo.run.session import Run
from zoo.weights import recorded

KEYS = {
    "data.root": "set",
    "data.train_images": 16,
    "data.val_images": 16,
    "data.size": 16,
    "data.workers": 0,
    "model.width": 4,
    "train.epochs": 3,
    "train.batch": 8,
    "train.eval_batch": 16,
    "optim.warmup": "0 epochs",
}
RECIPE = ["-c", "resnet50_demo", *(word for key, value in KEYS.items() for word in ("-o", f"{key}={value}"))]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """A folder with the run runs/a of six updates, which was evaluated after every second one, and its data."""
    folder = tmp_path_factory.mktemp("habits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call_zoo("train", *RECIPE, "--out", "runs/a") == 0
    return folder


@pytest.fixture
def here(trained_once, tmp_path, monkeypatch):
    """A copy of it, which is the current folder."""
    shutil.copytree(trained_once, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def stopped(here, monkeypatch):
    """The run before its fifth update, as a signal has left it."""
    shutil.rmtree("runs/a")
    assert call_zoo("train", *RECIPE, "--out", "runs/a", "--max-steps", 4) == 0
    drop_end("runs/a")


def drop_end(run):
    with open(f"{run}/events.jsonl") as file:
        lines = [line for line in file if '"event": "end"' not in line]
    with open(f"{run}/events.jsonl", "w") as file:
        file.writelines(lines)


def write_evaluation(step, accuracy, loss):
    path = f"runs/a/checkpoints/step-{step:08d}/evaluation.json"
    with open(path) as file:
        metrics = json.load(file)
    with open(path, "w") as file:
        json.dump({**metrics, "accuracy": accuracy, "top1": accuracy, "loss": loss}, file)


def remove_links(run):
    for name in ("best", "last"):
        os.remove(f"{run}/checkpoints/{name}")


@pytest.mark.parametrize(
    "evaluations, step",
    [
        ([(2, 0.5, 2.0), (4, 0.75, 1.0), (6, 0.5, 0.5)], 4),
        ([(2, 0.75, 2.0), (4, 0.75, 1.0), (6, 0.75, 1.5)], 4),  # of equals, that with the lower loss
        ([(2, 0.75, None), (4, None, 1.0), (6, 0.75, None)], 2),
    ],
)
def test_a_copy_without_its_links_is_used_with_its_best_checkpoint(here, capsys, evaluations, step):
    for each in evaluations:
        write_evaluation(*each)
    remove_links("runs/a")
    for name in ("runs/a", "runs/a/checkpoints/best"):
        assert trained.read(name, None, "cpu", ()).record["step"] == step
    assert os.path.basename(recorded.resolve_pointer("runs/a/checkpoints/last")) == "step-00000006"
    assert call_zoo("evaluate", "runs/a", "--device", "cpu") == 0
    assert f"runs/a/checkpoints/step-{step:08d}/" in capsys.readouterr().out


def test_a_resume_of_a_copy_without_links_makes_them_anew(stopped):
    best = os.readlink("runs/a/checkpoints/best")
    remove_links("runs/a")
    assert call_zoo("train", "--resume", "runs/a", "--max-steps", 5) == 0
    assert os.readlink("runs/a/checkpoints/last") == "step-00000005" and os.path.isdir(f"runs/a/checkpoints/{best}")


def test_a_run_that_was_moved_with_its_data_goes_on(stopped):
    os.makedirs("elsewhere")
    shutil.move("runs/a", "elsewhere/renamed")
    shutil.move("set", "elsewhere/set")
    assert call_zoo("train", "--resume", "elsewhere/renamed", "-o", "data.root=elsewhere/set") == 0
    assert events("elsewhere/renamed")[-1]["event"] == "end"
    assert trained.read("elsewhere/renamed", None, "cpu", ()).path.startswith("elsewhere/renamed/checkpoints/step-")


def test_a_resume_that_trains_nothing_changes_nothing(here, capsys):
    with open("runs/a/config.yaml") as file:
        before = file.read()
    number = len(events("runs/a"))
    assert call_zoo("train", "--resume", "runs/a", "-o", "optim.lr=0.5") == 0
    assert "runs/a is complete at step 6: nothing to do; config.yaml stays as it was" in capsys.readouterr().out
    with open("runs/a/config.yaml") as file:
        assert file.read() == before
    assert len(events("runs/a")) == number


def test_a_resume_that_only_evaluates_claims_no_other_learning_rate(here):
    drop_end("runs/a")
    assert call_zoo("train", "--resume", "runs/a", "-o", "optim.lr=0.5") == 0
    *_, again, end = events("runs/a")
    assert (again["event"], end["event"]) == ("resume", "end") and "optimizer" not in again
    with open("runs/a/config.yaml") as file:
        assert "lr: 0.1 " in file.read()


def test_a_resume_that_trains_records_what_changed(stopped):
    assert call_zoo("train", "--resume", "runs/a", "-o", "optim.lr=0.5") == 0
    with open("runs/a/config.yaml") as file:
        assert "lr: 0.5 " in file.read()


def test_a_run_that_was_cut_short_is_not_called_complete(here, capsys):
    words = ["train", *RECIPE, "--out", "short", "--max-steps", 2]
    assert call_zoo(*words) == 0
    capsys.readouterr()
    assert call_zoo(*words, "--resume") == 0
    assert "short has ended at step 2 of 6 (--max-steps): nothing to do" in capsys.readouterr().out
    assert call_zoo("runs", "short") == 0 and "ended: at step 2 of 6 (--max-steps)" in capsys.readouterr().out


def test_the_best_of_equals_has_the_lower_loss(here, monkeypatch, capsys):
    losses = iter([2.0, 1.0, 1.5])
    evaluate = Run._evaluate

    def equal(run, done):
        measure, loss = run.evaluations.measure, next(losses)
        monkeypatch.setattr(run.evaluations, "measure", lambda *a: {**measure(*a), "accuracy": 0.5, "loss": loss})
        return evaluate(run, done)

    monkeypatch.setattr(Run, "_evaluate", equal)
    assert call_zoo("train", *RECIPE, "--out", "ties") == 0
    assert "0.5000 at epoch 2" in capsys.readouterr().out and os.readlink("ties/checkpoints/best") == "step-00000004"


@pytest.mark.parametrize("lost", ["config.yaml", "checkpoints/best", "last half line", "classes.csv"])
def test_a_run_that_has_lost_a_part_goes_on(stopped, lost, capsys):
    if lost == "last half line":
        with open("runs/a/events.jsonl", "r+") as file:
            file.truncate(len(file.read()) - 20)
    else:
        os.remove(f"runs/a/{lost}")
    assert call_zoo("train", "--resume", "runs/a") == 0
    assert os.path.exists("runs/a/config.yaml") and os.path.exists("runs/a/checkpoints/best")
    assert [event["step"] for event in journal.history("runs/a") if event["event"] == "end"] == [6]
    assert call_zoo("train", "--resume", "runs/a") == 0 and "nothing to do" in capsys.readouterr().out  # once more


def test_run_twice_and_delete_one(here):
    for name in ("runs/resnet50_demo", "runs/resnet50_demo-2"):
        assert call_zoo("train", *RECIPE, "--max-steps", 2) == 0 and os.path.isdir(name)
    shutil.rmtree("runs/resnet50_demo")
    assert call_zoo("train", *RECIPE, "--max-steps", 2) == 0 and os.path.isdir("runs/resnet50_demo")
    assert call_zoo("train", *RECIPE, "--resume") == 0  # the newest, which has the lowest number now
    last = [events(f"runs/resnet50_demo{number}")[-1]["step"] for number in ("", "-2")]
    assert last == [6, 2]


STAGES = {
    "the check of the data": ("zoo.run.dataset.audit_data", 1),
    "the first weights": ("zoo.run.weights.initial", 1),
    "the first update": ("zoo.run.session.Run.take", 1),
    "an evaluation": ("zoo.run.evaluation.Evaluations.measure", 2),
    "a checkpoint": ("zoo.run.checkpoint.save_shared", 2),
    "the end": ("zoo.logs.console.Console.summarize", 1),
}


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_at_every_stage_loses_nothing(here, stage, monkeypatch, capsys):
    name, number = STAGES[stage]
    function, calls = pkgutil.resolve_name(name.rpartition(".")[0]), itertools.count(1)
    before = getattr(function, name.rpartition(".")[2])

    def interrupted(*words, **options):
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return before(*words, **options)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it
    with monkeypatch.context() as patch:
        patch.setattr(name, interrupted)
        code = call_zoo("train", *RECIPE, "--out", "stopped")
    signal.signal(signal.SIGINT, handler)
    assert code == (0 if stage == "the end" else 130) and "Traceback" not in capsys.readouterr().err
    assert call_zoo("train", *RECIPE, "--out", "stopped", "--resume") == 0
    found = [load_file(f"{run}/checkpoints/last/model.safetensors") for run in ("runs/a", "stopped")]
    assert found[0].keys() == found[1].keys()
    assert all(np.array_equal(found[0][key], found[1][key]) for key in found[0])
    assert os.readlink("stopped/checkpoints/best") == os.readlink("runs/a/checkpoints/best")


@pytest.mark.slow
def test_names_of_any_script_in_a_locale_without_them(here):
    shutil.move("runs/a", "runs/\u732b \u7a7a")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    for words in (["runs"], ["evaluate", "runs/\u732b \u7a7a"], ["train", "--resume", "runs/\u732b \u7a7a"]):
        done = subprocess.run(program.command(*words), env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert r"runs/\u732b \u7a7a" in done.stdout
