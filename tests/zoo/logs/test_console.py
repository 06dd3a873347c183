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


def test_train_lines_with_the_time_left_from_the_second_update(console):
    console.tick(1)
    console({**TRAIN, "step": 1})
    console.tick(2)
    console({**TRAIN, "step": 2})
    assert lines(console) == [
        "step 1/640  epoch 0.50  loss 2.0625  lr 0.01  grad 2.5  161.8/s  wait 12%  ETA ?",
        "step 2/640  epoch 0.50  loss 2.0625  lr 0.01  grad 2.5  161.8/s  wait 12%  ETA 1h46m",  # 638 x 10 s
    ]


def test_loss_scale_and_skipped_updates_have_a_line_when_they_change(console):
    for values in ({"scale": 65536.0}, {"scale": 65536.0}, {"scale": 32768.0, "skipped": 1.0}):
        console({**TRAIN, **values})
    found = lines(console)
    assert found[0] == "step 20: loss scale 65536"
    assert found[3] == "step 20: loss scale 32768, 1 updates skipped so far (no finite gradient)"
    assert len(found) == 5 and all("scale" not in found[number] for number in (1, 2, 4))


def test_evaluations(console):
    console(EVAL)
    others = {"ema": {"top1": 0.25, "samples": 160}, "train": {"top1": 0.5, "samples": 8}}
    console({**EVAL, "time": 1.0, "step": 20, "epoch": 0.5, "bad": 3, "iou": {"road": 0.5}, **others})
    console({**EVAL, "iou": {f"class {number}": 0.5 for number in range(20)}})
    found = lines(console)
    assert found[:5] == [
        "evaluation: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s",
        "evaluation after epoch 0.50: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s  "
        "(3 unreadable, counted as wrong)",
        "  moving average: top1 0.2500",
        "  training samples: top1 0.5000",
        "IoU by class: road 0.500",
    ]
    assert max(map(len, found[6:])) <= 100 and len(found) == 10 and found[-1].endswith("class 19 0.500")


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
