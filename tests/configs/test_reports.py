"""Recipes of the five reports: their numbers as published, and learning rates as in the logs of the submissions."""

from typing import NamedTuple

import pytest

from tests.configs.test_recipes import lr_schedule, read
from tests.helpers.paths import CONFIGS

WORLDS = {"1": 1, "8": 8, "4x8": 32}


class Report(NamedTuple):
    """What a report had."""

    framework: str
    batch: int  # per card
    rates: tuple[float, float, float]  # learning rates on 1, 8 and 32 cards
    steps_per_epoch: tuple[int, int, int]  # of whole batches
    precision: str
    log_every: str
    eval_every: str
    target: float | None
    workers: int


REPORTS = {
    "tsm_torch_airank": Report(
        "torch", 16, (0.0025, 0.02, 0.08), (14661, 1832, 458), "amp", "4 steps", "1 epoch", 0.711, 16
    ),
    "tsm_paddle_airank": Report(
        "paddle", 16, (0.0025, 0.02, 0.08), (14663, 1832, 458), "amp", "20 steps", "1 epoch", 0.71, 4
    ),
    "deeplabv3plus_mmseg_airank": Report(
        "torch", 4, (0.01, 0.01, 0.01), (743, 92, 23), "amp", "20 steps", "8000 steps", 0.785, 4
    ),
    "resnet50_mindspore_dlperf": Report(
        "mindspore", 128, (0.8, 0.8, 0.8), (10009, 1251, 312), "fp32", "10 steps", "1 epoch", None, 8
    ),
    "arcface_plsc_dlperf": Report(
        "paddle", 128, (0.0125, 0.1, 0.4), (45489, 5686, 1421), "fp32", "10 steps", "150 steps", None, 0
    ),
}


def report(name):
    return read(f"reports/{name}")


def test_there_is_a_recipe_for_each_report():
    assert {path.stem for path in (CONFIGS / "reports").glob("*.yaml")} == set(REPORTS)


@pytest.mark.parametrize("name", REPORTS)
def test_numbers_of_the_report(name):
    expected, cfg = REPORTS[name], report(name)
    assert (cfg.framework, cfg.train.precision, cfg.target) == (expected.framework, expected.precision, expected.target)
    assert (str(cfg.train.log_every), str(cfg.train.eval_every)) == (expected.log_every, expected.eval_every)
    assert (cfg.train.batch, cfg.train.accumulate, cfg.data.workers) == (expected.batch, 1, expected.workers)
    for size, rate, steps in zip(WORLDS.values(), expected.rates, expected.steps_per_epoch):
        lr, _ = lr_schedule(cfg, cfg.upstream.train_samples, size)
        assert lr(0) == pytest.approx(rate, rel=1e-12)
        assert cfg.upstream.train_samples // (size * expected.batch) == steps


def test_schedule_of_tsm_as_in_the_logs():
    """Of PyTorch on 32 cards, of Paddle on 8: 20 epochs each of the first two learning rates."""
    for name, size, rates in (
        ("tsm_torch_airank", 32, (0.08, 0.008, 0.0008)),
        ("tsm_paddle_airank", 8, (0.02, 0.002, 0.0002)),
    ):
        cfg = report(name)
        lr, steps = lr_schedule(cfg, cfg.upstream.train_samples, size)
        assert [lr(int(steps * fraction)) for fraction in (0.39, 0.41, 0.79, 0.81)] == pytest.approx(
            [rates[0], rates[1], rates[1], rates[2]]
        )
        assert (cfg.train.epochs, cfg.optim.clip_norm, cfg.optim.weight_decay, cfg.model.dropout) == (50, 20, 1e-4, 0.5)
    assert report("tsm_torch_airank").optim.initial_loss_scale == 1
    assert report("tsm_paddle_airank").model.shift_direction == "past"  # as in PaddleVideo


@pytest.mark.parametrize("iteration, logged", [(20, 9.998e-3), (40, 9.996e-3), (63980, 2.428e-3)])
def test_learning_rate_of_deeplabv3plus_as_in_the_log_of_8_cards(iteration, logged):
    """`Iter [63980/80000] lr: 2.428e-03`: mmsegmentation 0.11 logs the learning rate of the update that it has made."""
    cfg = report("deeplabv3plus_mmseg_airank")
    lr, steps = lr_schedule(cfg, cfg.upstream.train_samples, 8)
    assert steps == 80000 and lr(iteration - 1) == pytest.approx(logged, abs=5e-7)
    assert (cfg.optim.loss_scale, cfg.optim.weight_decay, cfg.train.sync_bn) == (512, 5e-4, True)
    assert lr(steps - 1) == pytest.approx(1.00383e-4, abs=1e-9)  # of versions 0.x


def test_resnet50_of_mindspore():
    cfg = report("resnet50_mindspore_dlperf")
    assert (cfg.optim.momentum, cfg.optim.weight_decay, cfg.optim.initial_loss_scale) == (0.875, 1e-4, 2**24)
    assert (cfg.model.num_classes, cfg.model.padding, cfg.model.bn_eps) == (1001, "same", 1e-4)
    for size in WORLDS.values():
        lr, _ = lr_schedule(cfg, cfg.upstream.train_samples, size)
        total = cfg.upstream.train_samples // (128 * size)  # upstream's steps of an epoch
        for step in (0, 100, 199):  # linear to 0 at the end of the epoch
            assert lr(step) == pytest.approx(0.8 * (1 - step / total), rel=0.01 if size == 32 else 1e-3)
    spread = cfg.task.label_smoothing / 1001
    assert spread == pytest.approx(0.1 / 1000) and 1 - 1000 * spread == pytest.approx(0.9)


def test_arcface_of_plsc():
    cfg = report("arcface_plsc_dlperf")
    assert (cfg.data.kind, cfg.data.size) == ("face", 112)
    assert (cfg.data.num_classes, cfg.data.train_samples, cfg.data.threads, cfg.train.steps) == (85742, 5822653, 8, 150)
    assert (cfg.task.scale, cfg.task.m2, cfg.model.variant, cfg.optim.weight_decay) == (64, 0.5, "plsc", 5e-4)
