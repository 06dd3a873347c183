"""Console output of events, as plain lines."""

import io

import pytest

from zoo.logs.console import Console

METADATA = {
    "train_samples": 640,
    "val_samples": 160,
    "classes": 8,
    "checksum": "0880",
    "parameters": 703128,
    "outputs": 8,
    "weights": "drawn from seed 1",
    "plan": "1 rank(s)",
    "steps": 640,
    "compute": "fp16",
    "level": "O2",
    "compile": True,
    "framework": "paddle",
    "device": "cuda:0",
}
TRAIN = {
    "event": "train",
    "step": 20,
    "epoch": 0.5,
    "lr": 0.01,
    "loss": 2.0625,
    "grad_norm": 2.5,
    "scale": 1.0,
    "skipped": 0.0,
    "samples_per_s": 161.78,
    "data_wait_fraction": 0.12,
}
EVAL = {"event": "eval", "accuracy": 0.125, "top1": 0.125, "loss": 2.0, "samples": 160, "bad": 0, "seconds": 0.59}


@pytest.fixture
def console(monkeypatch):
    times = iter((100.0, 110.0))
    monkeypatch.setattr("zoo.logs.console.time.monotonic", lambda: next(times, 110.0))
    return Console(640, io.StringIO())


def lines(console):
    console.close()
    return console.rich.file.getvalue().splitlines()


def test_train_lines_with_the_time_left(console):
    console(TRAIN)
    console({**TRAIN, "step": 40, "scale": 65536.0, "skipped": 2.0})
    assert lines(console) == [
        "step 20/640  epoch 0.50  loss 2.0625  lr 0.01  grad 2.5  161.8 samples/s, waiting for data 12%, ETA ?",
        "step 40/640  epoch 0.50  loss 2.0625  lr 0.01  grad 2.5  scale 65536  skipped 2  161.8 samples/s, "
        "waiting for data 12%, ETA 0:05:00",  # 20 steps in 10 s, 600 steps left
    ]


def test_evaluations(console):
    console(EVAL)
    console({**EVAL, "time": 1.0, "step": 20, "epoch": 0.5, "bad": 3, "iou": {"road": 0.5}})
    assert lines(console) == [
        "evaluation: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s",
        "evaluation after epoch 0.5: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s  "
        "(3 unreadable, counted as wrong)",
        "IoU by class: road 0.500",
    ]


def test_other_events(console):
    console({"event": "bad", "name": "a.mp4", "reason": "the file is empty", "replaced_by": "b.mp4"})
    console({"event": "bad", "name": "c.mp4", "reason": "[bold] is not markup", "replaced_by": None})
    console({"event": "data_wait", "step": 20, "message": "waiting for data 50% of the time"})
    console({"event": "save", "path": "runs/x/checkpoints/step-00000020"})
    console({"event": "resume", "step": 0, "path": None})
    console({"event": "begin"})
    assert lines(console) == [
        "unreadable sample: a.mp4: the file is empty; replaced by b.mp4",
        "unreadable sample: c.mp4: [bold] is not markup; counted as wrong",
        "waiting for data 50% of the time",
        "saved runs/x/checkpoints/step-00000020",
        "resuming from step 0 (no checkpoint was written yet)",
    ]


def test_the_summary_of_a_run(console):
    console.describe(METADATA, ["train.batch: 16 -> 8"], ["warning: no class names"])
    assert lines(console) == [
        "changed since the run began: train.batch: 16 -> 8",
        "data: 640 training and 160 validation samples, 8 classes, checksum 0880",
        "warning: no class names",
        "model: 703,128 parameters, the head has 8 outputs (8 classes in the data); weights: drawn from seed 1",
        "plan: 1 rank(s), 640 steps",
        "computing in fp16 (O2) with paddle, compiled on cuda:0",
    ]


def test_the_summary_names_a_mode_of_the_compiler(console):
    console.describe({**METADATA, "compile": "reduce-overhead"}, [], [])
    assert lines(console)[-1] == "computing in fp16 (O2) with paddle, compiled (reduce-overhead) on cuda:0"


def test_the_list_of_ranks(console):
    console.print_ranks("torchrun", [{"host": "a", "device": "cpu", "framework": "torch"}])
    text = lines(console)
    assert text[0] == "1 processes, started by torchrun:" and text[1].split() == ["rank", "0", "a", "cpu", "torch"]
