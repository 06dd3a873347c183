"""Recipes of published results: their hyper-parameters, and the learning rates that follow for several world sizes."""

import math

import pytest

from tests.helpers.paths import CONFIGS
from zoo.config import loader
from zoo.run import schedule
from zoo.run.cli import FIND

IMAGENET_SIZE, MS1MV2_SIZE, GLINT360K_SIZE = 1281167, 5822653, 17091657


def read(name):
    return loader.build(loader.read(str(CONFIGS / f"{name}.yaml")), FIND)[0]


def lr_schedule(cfg, train_samples, world_size):
    """Return the learning rate as a function of the step, and the number of steps."""
    clock = schedule.clock(cfg.train, train_samples, world_size)
    return schedule.lr_schedule(cfg.optim, cfg.train, clock), clock.steps


def test_resnet50_of_nvidia():
    cfg = read("resnet50_imagenet")
    assert (cfg.train.epochs, cfg.train.batch, cfg.optim.momentum, cfg.task.label_smoothing) == (90, 256, 0.875, 0.1)
    assert cfg.optim.weight_decay == 1 / 32768 and cfg.model.decay == "all_but_bn" and cfg.optim.clip_norm is None
    assert (cfg.model.depth, cfg.model.width, cfg.model.pretrained, cfg.target) == (50, 64, None, 0.759)
    assert (cfg.data.size, cfg.data.short_side, cfg.data.scale, cfg.data.flip) == (224, 256, (0.08, 1.0), True)
    for world_size, peak in ((1, 0.256), (8, 2.048)):
        lr, steps = lr_schedule(cfg, IMAGENET_SIZE, world_size)
        first = [math.ceil(epoch * IMAGENET_SIZE / (256 * world_size)) for epoch in range(91)]
        assert lr(0) == lr(first[1] - 1) == pytest.approx(peak / 8) and lr(first[1]) == pytest.approx(peak / 4)
        assert lr(first[7]) == lr(first[9] - 1) == pytest.approx(peak) and lr(first[9]) < peak
        assert lr(first[49]) == lr(first[50] - 1) == pytest.approx(peak / 2)  # half of the cosine
        assert lr(steps - 1) == lr(first[89]) == pytest.approx(peak * 0.5 * (1 - math.cos(math.pi / 82)))
    assert lr_schedule(cfg, IMAGENET_SIZE, 8)[1] == math.ceil(90 * IMAGENET_SIZE / 2048) == 56302


def test_resnet50_of_torchvision():
    cfg = read("resnet50_imagenet_v1")
    assert (cfg.train.epochs, cfg.train.batch, cfg.optim.momentum, cfg.task.label_smoothing) == (90, 32, 0.9, 0.0)
    assert cfg.optim.weight_decay == 1e-4 and cfg.model.decay == "all" and cfg.model.pretrained is None
    for world_size, peak in ((1, 0.0125), (8, 0.1)):
        lr, steps = lr_schedule(cfg, IMAGENET_SIZE, world_size)
        first, second = (math.ceil(epoch * IMAGENET_SIZE / (32 * world_size)) for epoch in (30, 60))
        assert [lr(step) for step in (0, first - 1, first, second - 1, second, steps - 1)] == pytest.approx(
            [peak, peak, peak / 10, peak / 10, peak / 100, peak / 100]
        )


def test_arcface_of_plsc():
    cfg = read("arcface_ms1m")
    optim, train, task = cfg.optim, cfg.train, cfg.task
    assert (cfg.model.variant, cfg.model.depth, cfg.data.normalisation, cfg.data.size) == ("plsc", 50, "plsc", 112)
    assert (task.scale, task.m1, task.m2, task.m3, task.threshold, task.sample_rate) == (64, 1, 0.5, 0, False, 1)
    assert (optim.momentum, optim.weight_decay, optim.clip_norm, optim.warmup.value) == (0.9, 5e-4, None, 0)
    assert (train.epochs, train.batch) == (120, 128) and cfg.data.flip
    lr, _ = lr_schedule(cfg, MS1MV2_SIZE, 8)
    for step, expected in (
        (0, 0.1),
        (99_999, 0.1),
        (100_000, 0.01),
        (159_999, 0.01),
        (160_000, 1e-3),
        (219_999, 1e-3),
        (220_000, 1e-4),
        (600_000, 1e-4),
    ):
        assert lr(step) == pytest.approx(expected)
    for world_size, expected in ((1, 0.0125), (32, 0.4)):
        assert schedule.base_lr(optim, 128 * world_size) == pytest.approx(expected)


def test_arcface_of_insightface():
    cfg = read("arcface_glint360k")
    optim, train, task = cfg.optim, cfg.train, cfg.task
    assert (cfg.model.variant, cfg.model.depth, cfg.data.normalisation) == ("insightface", 100, "insightface")
    assert (task.scale, task.m1, task.m2, task.m3, task.sample_rate) == (64, 1, 0, 0.4, 1)
    assert (optim.momentum, optim.weight_decay, optim.clip_norm, optim.clip_sharded) == (0.9, 1e-4, 5, False)
    lr, steps = lr_schedule(cfg, GLINT360K_SIZE, 8)
    assert lr(0) == pytest.approx(0.1) and lr(steps // 2) == pytest.approx(0.05, rel=1e-4)
    assert 0 < lr(steps - 1) < 1e-6 and (train.epochs, train.batch) == (20, 128)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_names_its_upstream_and_a_demo_has_none(path):
    upstream = read(path.relative_to(CONFIGS).with_suffix("")).upstream
    assert (upstream is None) == path.stem.endswith("_demo")
    assert upstream is None or upstream.train_samples is not None  # for --plan
