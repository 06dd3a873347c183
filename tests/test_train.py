"""train.py as a user runs it: tiny models on tiny clips; in a process of its own where one is killed or limited."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.training import (
    DEMO,
    K400,
    SMALL,
    TINY,
    TRAIN,
    command,
    events,
    lines,
    run,
    run_here,
    same,
    weights,
)
from zoo.data.demo import motion
from zoo.logs.journal import history
from zoo.logs.timing import Throughput
from zoo.run.session import Run
from zoo.weights import registry
from zoo.weights.download import NotDownloaded


@pytest.fixture(scope="module")
def undisturbed_run(clips, tmp_path_factory):
    """A run of 24 steps that nothing disturbed."""
    folder = str(tmp_path_factory.mktemp("run") / "run")
    done = run_here(command(clips, "--out", folder))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_files_of_a_run(undisturbed_run):
    folder, out = undisturbed_run
    files = [".lock", "airank.log", "checkpoints", "classes.csv", "config.yaml", "events.jsonl"]
    *others, board = sorted(os.listdir(folder), key=lambda name: ("tfevents" in name, name))
    assert others == files and "tfevents" in board
    shown = EventAccumulator(folder).Reload().Tags()["tensors"]
    assert {"recipe", "val_images/samples", "val_images/confusion", "val_class_accuracy/left"} <= set(shown)
    kinds = [event["event"] for event in events(folder)]
    assert kinds.count("eval") == 6 and kinds.count("train") == 24 and kinds[0] == "load" and kinds[-1] == "end"
    assert "the head has 8 outputs (8 classes in the data)" in out and "computing in fp32 with torch on cpu" in out
    assert "plan: 1 rank(s) x 1 micro-batch(es) x 4 samples = global batch 4, learning rate 0.005 after 4 epochs" in out
    told = [line.split("  ")[0] for line in out.splitlines() if line.startswith("epoch ")]
    assert told == [f"epoch {number}/6" for number in range(1, 7)] and "\nbest        top1 " in out
    rates = [event["lr"] for event in events(folder) if event["event"] == "train"]
    np.testing.assert_allclose(rates[:17], np.arange(17) / 16 * 0.02 * 4 / 16, rtol=1e-6)  # 16 steps of warm-up
    kept = sorted(name for name in os.listdir(os.path.join(folder, "checkpoints")) if name.startswith("step-"))
    evals = [event for event in events(folder) if event["event"] == "eval"]
    best = max(evals, key=lambda event: event["accuracy"])["step"]
    assert kept == sorted({f"step-{step:08d}" for step in (best, 22, 23, 24)})
    assert os.readlink(os.path.join(folder, "checkpoints", "best")) == f"step-{best:08d}"
    with open(os.path.join(folder, "checkpoints", "last", "checkpoint.json")) as file:
        record = json.load(file)
    assert (
        record["classes"] == list(motion.CLASSES)
        and record["step"] == 24
        and record["weights"] == "initialized from seed 1"
    )
    for event in evals:
        path = os.path.join(folder, "checkpoints", f"step-{event['step']:08d}", "evaluation.json")
        if os.path.exists(path):
            with open(path) as file:
                assert json.load(file)["accuracy"] == event["accuracy"]


def test_the_log_satisfies_airank(undisturbed_run):
    folder, _ = undisturbed_run
    log = os.path.join(folder, "airank.log")
    assert call_zoo("airank", "log", log, "--samples", 16, "--target", 0.95) == 0


@pytest.mark.slow
def test_a_train_event_has_the_mean_loss_since_the_last_one_also_after_a_resume(clips, undisturbed_run, tmp_path):
    single = {event["step"]: event["loss"] for event in events(undisturbed_run[0]) if event["event"] == "train"}
    settings = dict(train__log_every="5 steps", train__keep_checkpoints=24)
    folder = tmp_path / "run"
    assert run_here(command(clips, "--out", folder, **settings)).returncode == 0
    stopped = tmp_path / "stopped"
    assert run_here(command(clips, "--out", stopped, "--max-steps", 13, **settings)).returncode == 0
    assert run_here(command(clips, "--resume", stopped, **settings)).returncode == 0
    for name in os.listdir(folder / "checkpoints"):  # as if killed after step 13
        if not name.startswith("step-") or name > "step-00000013":
            path = folder / "checkpoints" / name
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
    first, resumed = events(folder), run_here(command(clips, "--resume", folder, **settings))
    assert resumed.returncode == 0, resumed.stderr
    for found in (first, history(str(folder)), history(str(stopped))):
        means = {event["step"]: event["loss"] for event in found if event["event"] == "train" and event["step"] != 13}
        expected = {last: np.mean([single[step] for step in range(begin, last + 1)])
                    for begin, last in ((1, 5), (6, 10), (11, 15), (16, 20), (21, 24))}  # fmt: skip
        assert means == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(clips, undisturbed_run, tmp_path):
    again = run_here(command(clips, "--out", tmp_path / "again", "--max-steps", 24, data__workers=1))
    assert again.returncode == 0, again.stderr
    for name in ("model.safetensors", "update.safetensors"):
        paths = [os.path.join(folder, "checkpoints/last", name) for folder in (undisturbed_run[0], tmp_path / "again")]
        assert Path(paths[0]).read_bytes() == Path(paths[1]).read_bytes()
    other = run_here(command(clips, "--out", tmp_path / "other", "--max-steps", 1, "--seed", 2, train__profile=9))
    assert other.returncode == 0 and "train.profile: nothing is profiled" in other.stdout
    assert not same(weights(tmp_path / "other", 1), weights(undisturbed_run[0], 24))


@pytest.mark.slow
def test_killed_at_random_and_resumed_ends_bit_identical(clips, undisturbed_run, tmp_path):
    folder, rng, kills = tmp_path / "run", random.Random(5), 0
    words = command(clips, "--out", folder, "--resume")
    while kills < 4:
        process = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        start, before = time.monotonic(), len(lines(folder))
        # Kill once a random number of events has come since the start, so that slow machines get through too.
        wanted = rng.randint(1, 12)
        while process.poll() is None and len(lines(folder)) < before + wanted and time.monotonic() - start < 60:
            time.sleep(0.01)
        if process.poll() is not None:
            assert process.returncode == 0, process.stderr.read()
            break
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        (folder / "checkpoints/best").unlink(missing_ok=True)  # as if it had come before the link
    assert kills >= 2
    done = run_here(words)
    assert done.returncode == 0, done.stderr
    assert same(weights(folder, 24), weights(undisturbed_run[0], 24))
    counted = [event for event in history(str(folder)) if event["event"] == "train"]
    assert [event["step"] for event in counted] == list(range(1, 25))
    undisturbed = {event["step"]: event["loss"] for event in events(undisturbed_run[0]) if event["event"] == "train"}
    assert {event["step"]: event["loss"] for event in counted} == undisturbed
    assert os.readlink(folder / "checkpoints/best") == os.readlink(f"{undisturbed_run[0]}/checkpoints/best")


@pytest.mark.slow
def test_events_that_a_kill_prevented_are_made_up_for(clips, undisturbed_run, tmp_path):
    """The last checkpoint is there, but nothing that would have come after it; nor is the first event."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed_run[0], folder, symlinks=True)
    complete = lines(folder)
    names = [(event["event"], event.get("step")) for event in events(folder)]
    (folder / "events.jsonl").write_text("".join(complete[1 : names.index(("save", 24))]))
    checkpoints = folder / "checkpoints"
    kept = sorted(path.name for path in checkpoints.iterdir())
    shutil.copytree(checkpoints / "step-00000022", checkpoints / "step-00000021")
    (checkpoints / "last").unlink()
    (checkpoints / "last").symlink_to("step-00000022")
    (checkpoints / ".last").symlink_to("step-00000024")  # a kill came before it was renamed
    done = run_here(command(clips, "--resume", folder))
    assert done.returncode == 0, done.stderr
    assert os.readlink(checkpoints / "last") == "step-00000024"
    assert sorted(path.name for path in checkpoints.iterdir()) == kept
    found = [(event["event"], event.get("step")) for event in history(str(folder)) if event["event"] != "resume"]
    assert sorted(found, key=str) == sorted(names, key=str)


@pytest.mark.slow
def test_sigterm_saves_says_so_and_exits_143(clips, undisturbed_run, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command(clips, "--out", folder, train__save_every="100 epochs"),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while len(lines(folder)) < 6:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and f"--resume {folder}" in out
    done = run_here([sys.executable, TRAIN, "--resume", str(folder)])
    assert done.returncode == 0, done.stderr
    assert same(weights(folder, 24), weights(undisturbed_run[0], 24))


@pytest.mark.slow
def test_a_full_disk_is_one_message_and_nothing_is_lost(clips, undisturbed_run, tmp_path):
    """A limit on the size of a file stands in for it."""
    folder = str(tmp_path / "run")
    assert run_here(command(clips, "--out", folder, "--max-steps", "3")).returncode == 0
    resume = [sys.executable, TRAIN, "--resume", folder]
    done = run(["bash", "-c", 'ulimit -f 100; exec "$@"', "limited", *resume])
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1] == (
        "error: the run's folder cannot be written to: File too large. What was saved before is complete; make room "
        "and continue with --resume"
    )
    assert sorted(os.listdir(os.path.join(folder, "checkpoints")))[-3:] == [f"step-{n:08d}" for n in (1, 2, 3)]
    assert run_here(resume).returncode == 0
    assert same(weights(folder, 24), weights(undisturbed_run[0], 24))


@pytest.mark.slow
def test_evaluation_alone_repeats_the_number(clips, undisturbed_run):
    folder, _ = undisturbed_run
    accuracy = [event for event in events(folder) if event["event"] == "eval"][-1]["accuracy"]
    for source in (
        ["--weights", f"{folder}/checkpoints/last"],
        ["--resume", folder],
        ["--weights", f"{folder}/checkpoints/last/model.safetensors"],
    ):
        done = run_here(command(clips, "--eval-only", *source, train__eval_batch=3))
        assert done.returncode == 0, done.stderr
        assert f"top1 {accuracy:.4f}" in done.stdout and "over 8 samples" in done.stdout


def test_check_only_refuses_what_a_run_refuses_and_writes_nothing(clips, tmp_path):
    done = run_here(command(clips, "--check-only"), cwd=tmp_path)
    assert done.returncode == 0 and "the run can start here" in done.stdout and "1 rank(s)" in done.stdout
    done = run_here(command(clips, "--check-only", "--speed", "--drop", 1000), cwd=tmp_path)
    assert done.returncode == 2 and "but the recipe's run has" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_run_is_never_overwritten(clips, undisturbed_run, tmp_path):
    before = weights(undisturbed_run[0], 24)
    done = run_here(command(clips, "--out", undisturbed_run[0]))
    assert done.returncode == 2 and "--resume" in done.stderr and "Traceback" not in done.stderr
    assert same(weights(undisturbed_run[0], 24), before)
    for expected in ("tsm_demo", "tsm_demo-2"):
        done = run_here(command(clips, "--max-steps", 1), cwd=tmp_path)
        assert done.returncode == 0 and os.path.isdir(tmp_path / "runs" / expected)


def test_a_finished_run_is_left_alone(clips, undisturbed_run, tmp_path):
    shutil.copytree(undisturbed_run[0], tmp_path / "run", symlinks=True)
    done = run_here(command(clips, "--resume", tmp_path / "run"))
    assert done.returncode == 0 and "is complete at step 24" in done.stdout
    for name in ("events.jsonl", "airank.log"):
        assert (tmp_path / "run" / name).read_text() == Path(undisturbed_run[0], name).read_text()
    assert (tmp_path / "run" / "airank.log").read_text().count("test_finish") == 1


@pytest.mark.slow
def test_resume_refuses_another_model_and_reports_other_changes(clips, undisturbed_run, tmp_path):
    shutil.copytree(undisturbed_run[0], tmp_path / "run", symlinks=True)
    done = run_here(command(clips, "--resume", tmp_path / "run", model__shift_div=4))
    assert done.returncode == 2 and "model.shift_div: 8 -> 4" in done.stderr
    done = run_here(command(clips, "--resume", tmp_path / "run", train__batch=8))
    assert done.returncode == 2 and "a global batch of 4, now it is 8" in done.stderr
    done = run_here(command(clips, "--resume", tmp_path / "run", train__keep_checkpoints=2))
    assert done.returncode == 0 and "train.keep_checkpoints: 3 -> 2" in done.stdout


def corrupt(clips, tmp_path, split, numbers, content=b"not a video"):
    """A copy of the set with some files replaced; their names."""
    root = tmp_path / "corrupt"
    shutil.copytree(clips, root)
    names = [line.split()[0] for line in (root / f"{split}.list").read_text().splitlines()]
    for number in numbers:
        (root / names[number]).write_bytes(content)
    return root, [names[number] for number in numbers]


@pytest.mark.slow
def test_bad_training_files_are_replaced_counted_and_named_once(clips, tmp_path):
    root, names = corrupt(clips, tmp_path, "train", (3, 9), b"")
    profile = {"train__profile": "9 steps", "train__save_every": "100 epochs"}  # up to the evaluation after step 8
    done = run_here(command(root, "--out", tmp_path / "run", data__max_bad=0.2, **profile))
    assert done.returncode == 0, done.stderr
    for name in names:
        assert done.stdout.count(f"unreadable sample: {name}: the file is empty") == 1
    assert [event["event"] for event in events(tmp_path / "run")].count("bad") == 2
    assert "unreadable training samples: 2 of 16 (12.50%), replaced by others" in done.stdout
    (profile,) = (event for event in events(tmp_path / "run") if event["event"] == "profile")
    assert (profile["step"], profile["updates"]) == (8, 3) and "\n".join(profile["table"]) in done.stdout
    files = tmp_path / "run" / "profile" / "step-00000006"
    assert sorted(os.listdir(files)) == ["profile.txt", "trace.json"] and profile["path"] == str(files)
    profiled = [event["step"] for event in events(tmp_path / "run") if event.get("profiled")]
    assert profiled == [6, 7, 8]


@pytest.mark.slow
def test_too_many_bad_training_files_stop_the_run_and_are_all_named(clips, tmp_path, capsys):
    root, names = corrupt(clips, tmp_path, "train", (3, 9, 12))
    done = run_here(command(root, "--out", tmp_path / "run"))
    assert done.returncode == 2 and "data.max_bad is 0.001" in done.stderr and "Traceback" not in done.stderr
    assert all(name in done.stderr for name in names)
    last = max(event["step"] for event in events(tmp_path / "run") if event["event"] == "train")
    assert os.readlink(tmp_path / "run/checkpoints/last") == f"step-{last:08d}"  # it was saved before
    capsys.readouterr()
    assert call_zoo("data", "check", "--deep", "-c", DEMO, "-o", f"data.root={root}", *SMALL) == 1
    out = capsys.readouterr().out
    assert all(name in out for name in names) and "3 unreadable" in out


@pytest.mark.slow
def test_a_bad_evaluation_file_is_an_error_or_counts_as_wrong(clips, tmp_path):
    root, names = corrupt(clips, tmp_path, "val", (2,))
    done = run_here(command(root, "--out", tmp_path / "a", "--max-steps", 1))
    assert done.returncode == 2 and names[0] in done.stderr and "data.eval_bad=wrong" in done.stderr
    settings = {"data__eval_bad": "wrong", "train__eval_train_samples": 3}
    done = run_here(command(root, "--out", tmp_path / "b", "--max-steps", 1, "--verbose", **settings))
    assert done.returncode == 0 and "1 unreadable, counted as wrong" in done.stdout and "over 8 samples" in done.stdout
    (event,) = (event for event in events(tmp_path / "b") if event["event"] == "eval")
    assert event["samples"] == 8 and event["train"].keys() == {"top1", "top5", "loss", "samples", "bad"}
    assert event["train"]["samples"] == 3 and "training samples: top1" in done.stdout


@pytest.mark.slow
def test_a_checkpoint_is_saved_before_its_evaluation(clips, tmp_path):
    """An evaluation that fails loses nothing: the resumed run evaluates that checkpoint first, then trains on."""
    root, names = corrupt(clips, tmp_path, "val", (2,))
    folder = tmp_path / "run"
    done = run_here(command(root, "--out", folder, "--max-steps", 5, train__save_every="100 epochs"))
    assert done.returncode == 2 and names[0] in done.stderr
    assert os.readlink(folder / "checkpoints/last") == "step-00000004"  # the end of the first epoch
    assert not any(event["event"] == "eval" for event in events(folder))
    shutil.copy(os.path.join(clips, names[0]), root / names[0])
    resume = [sys.executable, TRAIN, "--resume", str(folder)]
    done = run_here([*resume, "--max-steps", "5"])
    assert done.returncode == 0, done.stderr
    steps = [
        (event["event"], event["step"]) for event in history(str(folder)) if event["event"] in ("eval", "train", "end")
    ]
    assert steps == [*(("train", step) for step in (1, 2, 3, 4)), ("eval", 4), ("train", 5), ("eval", 5), ("end", 5)]
    for step in (4, 5):
        assert (folder / f"checkpoints/step-{step:08d}/evaluation.json").exists()


@pytest.mark.slow
def test_a_stopped_evaluation_is_made_up_for(clips, undisturbed_run, tmp_path, monkeypatch):
    """A SIGTERM in the last step of an epoch saves without evaluating; the resumed run has every evaluation."""
    poll = Run.poll
    with monkeypatch.context() as patch:
        stop = lambda run, done, output: (done == 4 and signal.raise_signal(signal.SIGTERM), poll(run, done, output))[1]  # noqa: E731
        patch.setattr(Run, "poll", stop)
        folder = tmp_path / "run"
        done = run_here(command(clips, "--out", folder))
    assert done.returncode == 143 and os.readlink(folder / "checkpoints/last") == "step-00000004", done.stderr
    done = run_here([sys.executable, TRAIN, "--resume", str(folder)])
    assert done.returncode == 0, done.stderr
    assert same(weights(folder, 24), weights(undisturbed_run[0], 24))
    evaluations = [
        [(event["step"], event["accuracy"], event["epoch"]) for event in found if event["event"] == "eval"]
        for found in (history(str(folder)), events(undisturbed_run[0]))
    ]
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 6
    assert os.readlink(folder / "checkpoints/best") == os.readlink(f"{undisturbed_run[0]}/checkpoints/best")


def test_a_run_that_diverges_stops_and_names_the_tensor(clips, tmp_path):
    done = run_here(
        command(
            clips,
            "--verbose",
            "--out",
            tmp_path / "run",
            optim__lr=1e38,
            optim__warmup="0 steps",
            train__max_consecutive_skips=3,
            train__save_every="10 epochs",
            train__eval_every="10 epochs",
            train__epochs=50,
        )
    )
    assert done.returncode == 2 and "no finite gradient in the last 3 updates, from step 2 to 4" in done.stderr
    assert "not finite: running statistics" in done.stderr and "gradients of conv1.weight" in done.stderr
    assert "Traceback" not in done.stderr
    assert "NaN" not in (tmp_path / "run" / "events.jsonl").read_text()
    last = [event for event in events(tmp_path / "run") if event["event"] == "train"][-1]
    assert last["consecutive_skips"] >= 3 and last["grad_norm"] is None and "grad nan" in done.stdout
    assert f"step {last['step']} is not saved" in done.stdout  # its running statistics are not finite


def test_a_run_that_diverges_at_its_end_fails_and_saves_nothing_that_is_not_finite(clips, tmp_path):
    settings = dict(optim__lr=1e38, optim__warmup="0 steps", train__epochs=1, train__save_every="1 epoch")
    done = run_here(command(clips, "--out", tmp_path / "run", **settings))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "step 4 is not saved, because nothing can go on from it: not finite are bn1.running_mean" in done.stdout
    assert "the last 3 updates, from step 2 to 4" in done.stderr and "best " not in done.stdout
    assert not list((tmp_path / "run").glob("checkpoints/step-*"))


def test_a_run_whose_predictions_are_not_finite_fails_and_has_no_best_checkpoint(clips, tmp_path):
    """The weights are finite, and the last update is the one that ruined them."""
    settings = dict(optim__lr=1e6, optim__warmup="0 steps")
    done = run_here(command(clips, "--out", tmp_path / "run", "--max-steps", 1, **settings))
    assert done.returncode == 2 and "the predictions after step 1 are not finite" in done.stderr
    assert not os.path.lexists(tmp_path / "run/checkpoints/best") and "Traceback" not in done.stderr
    found = run_here([sys.executable, TRAIN, "--eval-only", "--weights", tmp_path / "run/checkpoints/last"])
    assert found.returncode == 2 and "the predictions of these weights are not finite" in found.stderr


@pytest.mark.slow
def test_ten_clips_three_crops_and_frame_folders(clips, tmp_path):
    """Test-time views, and a list of frame folders with other class names."""
    import cv2

    from tests.helpers.clips import video_frames

    root = tmp_path / "frames"
    for split in ("train", "val"):
        rows = []
        for line in Path(clips, f"{split}.list").read_text().splitlines():
            path, label = line.split()
            os.makedirs(root / path)
            for number, frame in enumerate(video_frames(os.path.join(clips, path), np.arange), 1):
                cv2.imwrite(str(root / path / f"img_{number:05d}.jpg"), frame[:, :, ::-1])
            rows.append(f"{path} {number} {int(label) // 2}\n")
        (root / f"{split}.list").write_text("".join(rows))
    changes = {key: value for key, value in TINY.items() if key not in ("data.train_clips", "data.val_clips")}
    pairs = [
        word
        for key, value in {
            **changes,
            "data.name": "kinetics",
            "data.root": root,
            "data.flip_pairs": "[]",
            "data.eval_sampling": "dense",
            "data.eval_crops": 3,
            "train.eval_batch": 2,
        }.items()
        for word in ("-o", f"{key}={value}")
    ]
    done = run_here([sys.executable, TRAIN, "-c", DEMO, *pairs, "--max-steps", "1", "--out", str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    assert "the head has 4 outputs (4 classes in the data)" in done.stdout
    assert [event["samples"] for event in events(tmp_path / "run") if event["event"] == "eval"] == [8]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        ([], "no recipe: name one with -c"),
        (["-c", "configs/nothing.yaml"], "configs/nothing.yaml: there is no such recipe"),
        (["-c", "configs/tsm_demo.yaml", "-o", "shift_place=none"], "did you mean model.shift_place?"),
        (["-c", "configs/tsm_demo.yaml", "-o", "model.shift_place=nome"], "did you mean none?"),
        (
            ["-c", "configs/tsm_demo.yaml", "-o", "model.name=tsn"],
            "there is no model 'tsn'; there are: arcface, deeplabv3plus, resnet, tsm",
        ),
        (["-c", "configs/tsm_demo.yaml", "-o", "model.decay=all"], "unknown key for model.name=tsm"),
        (["-c", "configs/tsm_demo.yaml", "--device", "cuda:7"], "there is no cuda:7 here"),
        (["-c", "configs/tsm_demo.yaml", "--eval-only"], "error: --eval-only: name what to evaluate"),
        (["-c", "configs/tsm_demo.yaml", "--resume", "--max-steps", "1"], "there is no run runs/tsm_demo"),
        (["-c", "configs/tsm_demo.yaml", "-o", "model.num_classes=3"], "model.num_classes: the model has 3 outputs"),
        (
            ["-c", "configs/tsm_demo.yaml", "-o", "model.temporal_pool=true", "-o", "data.segments=3"],
            "model.temporal_pool",
        ),
        (["-c", "configs/tsm_demo.yaml", "--weights", "nowhere.safetensors"], "nowhere.safetensors"),
    ],
)
def test_mistakes_end_in_one_message(clips, tmp_path, words, message):
    os.symlink(os.path.join(ROOT, "configs"), tmp_path / "configs")
    words = words + (["-o", f"data.root={clips}", *SMALL] if words else [])
    done = run_here([sys.executable, TRAIN, *words], cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.startswith("error: ")


def test_without_data_the_folder_and_the_demo_are_named(tmp_path):
    start = time.monotonic()
    done = run_here([sys.executable, TRAIN, "-c", K400, "--amp"], cwd=tmp_path)
    assert done.returncode == 2 and time.monotonic() - start < 10
    assert str(tmp_path / "datasets/k400") in done.stderr and "configs/tsm_demo.yaml --amp" in done.stderr
    assert not os.listdir(tmp_path)


def test_without_imagenet_weights_the_file_to_place_is_named(clips, tmp_path, monkeypatch):
    pairs = ["-o", f"data.root={clips}", "-o", "data.name=motion", *SMALL, "-o", f"weights_dir={tmp_path}/weights"]

    def refused(urls, path, *_):
        raise NotDownloaded(f"no network. Place {urls[0]}")

    monkeypatch.setattr(registry, "download", refused)
    done = run_here([sys.executable, TRAIN, "-c", K400, *pairs, "--out", str(tmp_path / "run")])
    assert done.returncode == 2, done.stderr
    assert "resnet50-0676ba61.pth" in done.stderr and "-o model.pretrained=null" in done.stderr


def test_print_config_tells_where_values_come_from(clips):
    done = run_here(command(clips, "--amp", "--print-config"))
    assert done.returncode == 0
    lines = {line.split(":")[0].strip(): line for line in done.stdout.splitlines()}
    assert "# --amp" in lines["precision"] and "tsm_demo.yaml:" in lines["depth"] and "# -o data.root" in lines["root"]
    assert "tsm_k400.yaml:" in lines["shift_place"] and "# default" in lines["partial_bn"]
    assert yaml.safe_load(done.stdout)["optim"]["lr"] == 0.02


@pytest.mark.slow
def test_pretrained_and_foreign_weights_start_a_run(clips, undisturbed_run, tmp_path):
    """An ImageNet file with another head, then a checkpoint of another set with and without its head."""
    from safetensors.numpy import save_file

    tensors = load_file(os.path.join(undisturbed_run[0], "checkpoints/last/model.safetensors"))
    imagenet = {**tensors, "fc.weight": np.ones((1000, 64), np.float32), "fc.bias": np.ones(1000, np.float32)}
    other = str(tmp_path / "weights" / "resnet18.tv_in1k_v1" / "model.safetensors")
    os.makedirs(os.path.dirname(other))
    save_file(imagenet, other)
    done = run_here(
        command(
            clips,
            "--out",
            tmp_path / "a",
            "--max-steps",
            1,
            model__pretrained="imagenet",
            weights_dir=tmp_path / "weights",
            optim__lr=0,
        )
    )
    assert done.returncode == 0, done.stderr
    assert "weights: 100 tensors from" in done.stdout and "2 newly initialized" in done.stdout and other in done.stdout
    found = weights(tmp_path / "a", 1)
    assert np.array_equal(found["layer4.1.conv2.weight"], tensors["layer4.1.conv2.weight"])
    assert 0.0005 < found["fc.weight"].std() < 0.002

    done = run_here(command(clips, "--out", tmp_path / "b", "--max-steps", 1, "--weights", other))
    assert done.returncode == 2 and "fc.weight: (1000, 64), the model expects (8, 64)" in done.stderr
    assert "fresh_head=true" in done.stderr and not os.path.exists(tmp_path / "b")
    done = run_here(command(clips, "--out", tmp_path / "b", "--max-steps", 1, "--weights", other, fresh_head="true"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_signal_at_any_moment_of_a_step_is_answered_by_saving(clips, tmp_path, monkeypatch):
    """Here while a step is being logged, which is after it looked for signals: the next one saves."""
    read, folder = Throughput.read, tmp_path / "run"
    stop = lambda *words: (signal.raise_signal(signal.SIGTERM), read(*words))[1]  # noqa: E731
    monkeypatch.setattr(Throughput, "read", stop)
    done = run_here(command(clips, "--out", folder, train__save_every="100 epochs"))
    assert done.returncode == 143 and f"--resume {folder}" in done.stdout, done.stderr
    assert os.readlink(folder / "checkpoints" / "last") == "step-00000002"


@pytest.mark.slow
def test_ctrl_c_saves_although_the_readers_get_it_too(clips, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command(
            clips, "--out", folder, data__workers=1, train__save_every="100 epochs", train__eval_every="100 epochs"
        ),  # whose readers would just be starting
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while len(lines(folder)) < 4:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and f"--resume {folder}" in out and "Traceback" not in err
    assert os.path.isdir(folder / "checkpoints" / "last")
