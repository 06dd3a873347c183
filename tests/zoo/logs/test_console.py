"""Console output of events: a line per epoch, with `verbose` per event, and the table at the end."""

import io
import math

import pytest

from zoo.logs.console import Console
from zoo.logs.lines import share_text

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


BAD = {"name": "x.jpg", "reason": "cut off", "replaced_by": 7}


@pytest.fixture
def console(monkeypatch):
    times = iter((100.0, 110.0))  # of the first two updates
    console = Console(640, io.StringIO(), verbose=True)
    monkeypatch.setattr("zoo.logs.console.time.monotonic", lambda: next(times, 110.0))
    return console


def lines(console):
    console.close()
    return console.rich.file.getvalue().splitlines()


class Clock:
    """Seconds that pass when a test says so."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("zoo.logs.console.time", clock)
    return clock


def brief(out=None, **settings):
    return Console(640, out or io.StringIO(), **{"epochs": 16, "metric": "top1", **settings})


def play(console, clock, *events, seconds=1.0):
    """Let updates pass up to the step of each event; each takes so many seconds."""
    done = 0
    for event in events:
        while done < event["step"]:
            done += 1
            clock.now += seconds
            console.tick(done)
        console(event)


def at(name, step, /, **values):
    kind = {"train": TRAIN, "eval": EVAL}.get(name, {})
    return {**kind, "event": name, "step": step, "epoch": step / 40, **values}


def test_a_line_per_epoch_with_the_mean_of_its_log_intervals(clock):
    console = brief()
    play(
        console,
        clock,
        at("train", 20, loss=3.0, samples_per_s=100.0),
        at("train", 40, loss=1.0, samples_per_s=200.0),
        at("save", 40, path="x"),
        at("eval", 40, top1=0.5, accuracy=0.5),
        at("best", 40, path="x"),
        at("train", 60, loss=0.5),
        at("train", 80, loss=0.5),
        at("eval", 80, top1=0.25, accuracy=0.25, bad=3),
        at("eval", 640, top1=0.75, accuracy=0.75),
        at("best", 640, path="x"),
    )
    assert lines(console) == [
        "epoch  1/16  loss 2.0000  150/s  10m00s left  val loss 2.0000  top1 0.5000  best",
        "epoch  2/16  loss 0.5000  161.8/s  9m20s left  val loss 2.0000  top1 0.2500  (3 unreadable, counted as wrong)",
        "epoch 16/16  val loss 2.0000  top1 0.7500  best",
    ]


def test_an_epoch_without_an_evaluation_has_a_line_too(clock):
    console = brief(metric="accuracy")
    play(console, clock, at("train", 30), at("train", 60), at("train", 90, loss=1234.5), at("bad", 95, **BAD))
    console.print("stopped by signal 15")
    assert lines(console) == [
        "epoch 1.50/16  loss 2.0625  161.8/s  9m40s left",
        "epoch 2.25/16  loss 1234  161.8/s  9m10s left",
        "unreadable sample: x.jpg: cut off; replaced by 7",
        "stopped by signal 15",
    ]


def test_a_recipe_of_updates_has_a_line_per_evaluation_and_a_minute(clock):
    console = brief(epochs=None)
    play(console, clock, *(at("train", step) for step in range(20, 200, 20)), at("eval", 190, accuracy=0.5), seconds=2)
    assert [line.split("  ")[0] for line in lines(console)] == [f"step {n}/640" for n in (40, 80, 120, 160, 190)]


def test_a_terminal_shows_the_epochs_alone_with_colors_unless_refused(clock, monkeypatch):
    events = [*(at("train", step) for step in range(20, 60, 20)), at("eval", 50), at("best", 50, path="x")]
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for refused in (False, True):
        if refused:
            monkeypatch.setenv("NO_COLOR", "1")
        terminal = type("Terminal", (io.StringIO,), {"isatty": lambda self: True})()
        console = brief(terminal, epochs=None)
        monkeypatch.setattr(console.bar, "start", lambda: None)  # its own thread draws
        play(console, clock, *events, seconds=60)
        console._flush()
        written = terminal.getvalue()
        assert ("\x1b[32m" in written) is not refused and written.count("step") == 1


def test_the_table_at_the_end(clock):
    console = brief()
    begin, end = {"event": "begin", "time": 10.0}, {"event": "end", "time": 1175.0, "step": 80, "epoch": 2.0}
    killed, resume = {"event": "save", "time": 110.0}, {"event": "resume", "time": 1110.0}
    rates = [at("train", step, samples_per_s=rate) for step, rate in ((20, 9.0), (40, 100.0), (60, 101.0))]
    evals = [at("eval", 40, accuracy=0.75), at("best", 40, path="x"), at("eval", 80, accuracy=0.5)]
    console.summarize([begin, *rates, *evals, killed, resume, end], "runs/x")
    assert lines(console) == [
        "best        top1 0.7500 at epoch 1: 120 of 160, 95 % interval 0.68 to 0.81",
        "time        2m45s",
        "throughput  100 samples/s",
        "folder      runs/x",
        "next        zoo predict FILE --weights runs/x",
        "            zoo report runs/x --html",
    ]
    console = brief()
    console.summarize([begin, *rates, end], "runs/x")  # of a run that is timed
    assert lines(console) == []


def test_no_top5_with_fewer_than_six_classes(console):
    for classes in (5, 6):
        console.describe({**METADATA, "classes": classes}, [], [])
        console({**EVAL, "top5": 1.0})
    found = [line for line in lines(console) if line.startswith("evaluation")]
    assert "top5" not in found[0] and "top5 1.0000" in found[1]


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
    console({**EVAL, "iou": {f"traffic-light {number}": 0.5 for number in range(20)}})
    found = lines(console)
    assert found[:5] == [
        "evaluation: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s",
        "evaluation after epoch 0.50: top1 0.1250  loss 2.0000  over 160 samples in 0.6 s  "
        "(3 unreadable, counted as wrong)",
        "  moving average: top1 0.2500",
        "  training samples: top1 0.5000",
        "IoU by class: road 0.500",
    ]
    assert max(map(len, found[6:])) <= 100 and found[-1].endswith("traffic-light 19 0.500")
    assert not any(line.endswith("-") for line in found)  # no word is broken


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


@pytest.mark.parametrize(
    "evaluated_in, words", [("fp16", "fp16 (O2) with"), ("fp32", "fp16 (O2), evaluating in fp32,")]
)
def test_the_precision_of_evaluations_is_named_where_it_is_another_one(console, evaluated_in, words):
    console.describe({**METADATA, "eval_compute": evaluated_in}, [], [])
    assert lines(console)[-1].startswith(f"computing in {words}")


@pytest.mark.parametrize(
    "accuracy, samples, text",
    [  # intervals by scipy's binomtest(...).proportion_ci(method="wilson")
        (5 / 6, 6, "5 of 6, 95 % interval 0.44 to 0.97"),
        (1.0, 10, "10 of 10, 95 % interval 0.72 to 1.00"),
        (0.0, 10, "0 of 10, 95 % interval 0.00 to 0.28"),
        (0.5, 1000, ""),
        (math.nan, 10, ""),
    ],
)
def test_few_samples_have_their_count_and_interval(accuracy, samples, text):
    assert share_text(accuracy, samples) == text


def test_a_narrow_terminal_gets_whole_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    console = brief()
    console.describe(METADATA, ["train.batch: 16 -> 8"], [])
    text = console.rich.file.getvalue()
    assert max(map(len, text.splitlines())) <= 40
    monkeypatch.delenv("COLUMNS")
    wide = brief()
    wide.describe(METADATA, ["train.batch: 16 -> 8"], [])
    assert text.split() == wide.rich.file.getvalue().split()
