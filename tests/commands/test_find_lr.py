"""zoo find-lr: the rates that it tries, what it suggests, and what it refuses."""

import csv
import math

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.training import DEMO, TINY
from zoo.commands import find_lr


@pytest.fixture
def run(clips, tmp_path):
    pairs = {**TINY, "data.root": clips, "device": "cpu", "train.batch": 4, "optim.base_batch": 2}
    options = [word for key, value in pairs.items() for word in ("-o", f"{key}={value}")]
    return lambda *words: call_zoo("find-lr", "-c", DEMO, *options, "--out", tmp_path / "out", *words)


def test_every_update_has_a_larger_rate(run, tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    given = []

    class Spy:
        def __init__(self, trainer):
            self.trainer = trainer

        def __getattr__(self, name):
            return getattr(self.trainer, name)

        def step(self, micro_batches, lr, step):
            given.append(lr)
            return self.trainer.step(micro_batches, lr, step)

    assemble = find_lr.assemble
    monkeypatch.setattr(find_lr, "assemble", lambda *each: (job := assemble(*each))._replace(trainer=Spy(job.trainer)))
    code = run("--low", "1e-6", "--high", "1e-3", "--steps", "31")
    rows = list(csv.DictReader((tmp_path / "out/lr.csv").open()))
    assert [float(row["lr"]) for row in rows] == pytest.approx([10 ** (-6 + step / 10) for step in range(31)])
    assert given == pytest.approx([2 * float(row["lr"]) for row in rows])  # 4 samples, and optim.base_batch is 2
    assert float(rows[15]["smoothed"]) == pytest.approx(sum(float(row["loss"]) for row in rows[14:17]) / 3)
    assert (tmp_path / "out/lr.png").read_bytes()[:4] == b"\x89PNG"
    assert code == 1 and "the loss does not fall" in capsys.readouterr().out  # these rates are too small


def test_a_test_ends_when_the_loss_diverges(run, tmp_path):
    pytest.importorskip("torch")
    run("--low", "1", "--high", "1e12", "--steps", "60")
    assert len((tmp_path / "out/lr.csv").read_text().splitlines()) < 60


def test_half_of_the_fall_is_suggested():
    """The loss is 4 up to a rate of 1e-2, and falls to 2 at 1 by the logarithm of the rate: it is 3 at 1e-1."""
    rates = [10 ** (-4 + number / 100) for number in range(401)]
    rows = find_lr.smoothed(rates, [4 - max(0.0, 2 + math.log10(rate)) for rate in rates])
    assert find_lr.suggestion(rows) == pytest.approx(1e-1, rel=0.1)  # the mean at the end is above 2
    assert find_lr.suggestion(find_lr.smoothed(rates, [4.0] * 401)) is None
    assert find_lr.suggestion(find_lr.smoothed(rates, [4.0] * 200 + [3.9] * 201)) is None


@pytest.mark.parametrize(
    "words, message",
    [
        (["--low", "0"], "--low, --high: must be positive numbers in ascending order"),
        (["--high", "inf"], "--low, --high: "),
        (["--low", "1", "--high", "0.1"], "--low, --high: "),
        (["--steps", "3"], "--steps: must be at least 30"),
        (["-o", "optim.lrr=3"], "-o optim.lrr: unknown key"),
    ],
)
def test_what_is_refused(run, tmp_path, capsys, words, message):
    assert run(*words) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}") and not (tmp_path / "out").exists()
