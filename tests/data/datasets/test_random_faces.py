"""Noise in place of faces, and the recipes on faces."""

import pickle

import numpy as np
import pytest

from data.datasets import random_faces
from data.stream import open_evaluation, open_training
from tests.helpers.paths import CONFIGS
from zoo.config import loader
from zoo.run import schedule
from zoo.run.cli import FIND


def noise(**keys):
    return random_faces.load(random_faces.Settings(**{"workers": 0, "size": 32, **keys}))


def test_noise_is_standard_normal_for_the_net():
    train, val = noise(size=112)
    image = train.sample(0, np.random.default_rng(3))["image"]
    field = train.fields[0]
    values = (image / 255 - np.array(field.mean)) / field.std
    assert image.dtype == np.uint8 and image.shape == field.shape == (112, 112, 3)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    for quantile, expected in ((0.025, -1.96), (0.5, 0), (0.975, 1.96)):
        assert abs(np.quantile(values, quantile) - expected) < 0.05
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.02
    assert val.fields[0].std == field.std


def test_noise_is_a_function_of_the_position():
    train, _ = noise(num_classes=1000, train_images=64)
    whole = [batch for batch, _ in open_training(train, 1, 8, 0, 8)]
    ((third, _),) = open_training(train, 1, 8, 3, 4)
    assert np.array_equal(third["image"], whole[3]["image"]) and np.array_equal(third["label"], whole[3]["label"])
    ((half, _),) = open_training(train, 1, 4, 3, 4, rank=1, size=2)  # the second half of batch 3
    assert np.array_equal(half["image"], third["image"][4:]) and np.array_equal(half["label"], third["label"][4:])
    labels = np.concatenate([batch["label"] for batch in whole])
    assert len(set(labels.tolist())) > 50 and labels.min() >= 0 and labels.max() < 1000 and labels.dtype == np.int64
    ((again, _),) = open_training(train, 2, 8, 3, 4)
    assert not np.array_equal(again["label"], third["label"])


def test_labels_of_noise_are_uniform():
    train, _ = noise(num_classes=5, size=1)
    counts = np.bincount([int(train.sample(0, np.random.default_rng(seed))["label"]) for seed in range(2000)])
    assert len(counts) == 5 and ((counts - 400) ** 2 / 400).sum() < 18.5  # chi square, 4 degrees: 1 in 1000


def test_noise_of_any_number_of_identities_takes_no_memory():
    train, val = noise(num_classes=50_000_000)
    assert len(train.classes) == 50_000_000 and len(pickle.dumps(train)) < 10_000
    assert random_faces.checksum(train, val) != random_faces.checksum(*noise(num_classes=50_000_001))
    assert random_faces.checksum(train, val) == random_faces.checksum(*noise(num_classes=50_000_000, workers=2))


def test_pairs_of_noise():
    _, val = noise(val_pairs=20)
    ((batch, _),) = open_evaluation(val, 1, 20)
    assert val.sets == (("noise", 0, 20),) and val.views == 2 and batch["image"].shape == (20, 2, 32, 32, 3)
    assert batch["label"].tolist() == [1, 0] * 10 and batch["pair"].tolist() == list(range(20))


# --- recipes


def recipe(name):
    return loader.build(loader.read(str(CONFIGS / f"{name}.yaml")), FIND)[0]


def test_the_recipe_of_plsc():
    cfg = recipe("arcface_ms1m")
    optim, train, task = cfg.optim, cfg.train, cfg.task
    assert (cfg.model.variant, cfg.model.depth, cfg.data.normalisation, cfg.data.size) == ("plsc", 50, "plsc", 112)
    assert (task.scale, task.m1, task.m2, task.m3, task.threshold, task.sample_rate) == (64, 1, 0.5, 0, False, 1)
    assert (optim.momentum, optim.weight_decay, optim.clip_norm, optim.warmup.value) == (0.9, 5e-4, None, 0)
    assert (train.epochs, train.batch) == (120, 128) and cfg.data.flip
    lr = schedule.rate(optim, train, schedule.clock(train, 5822653, 8))
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
    for ranks, expected in ((1, 0.0125), (32, 0.4)):
        assert schedule.peak(optim, 128 * ranks) == pytest.approx(expected)


def test_the_recipe_of_insightface():
    cfg = recipe("arcface_glint360k")
    optim, train, task = cfg.optim, cfg.train, cfg.task
    assert (cfg.model.variant, cfg.model.depth, cfg.data.normalisation) == ("insightface", 100, "insightface")
    assert (task.scale, task.m1, task.m2, task.m3, task.sample_rate) == (64, 1, 0, 0.4, 0.1)
    assert (optim.momentum, optim.weight_decay, optim.clip_norm, optim.clip_sharded) == (0.9, 1e-4, 5, False)
    clock = schedule.clock(train, 17091657, 8)
    lr = schedule.rate(optim, train, clock)
    assert lr(0) == pytest.approx(0.1) and lr(clock.steps // 2) == pytest.approx(0.05, rel=1e-4)
    assert 0 < lr(clock.steps - 1) < 1e-6 and (train.epochs, train.batch) == (20, 128)


def test_the_recipe_of_the_speed_test():
    cfg = recipe("arcface_synthetic")
    assert (cfg.train.steps, cfg.train.batch, cfg.data.num_classes, cfg.data.size) == (150, 128, 85742, 112)
    assert (cfg.model.variant, cfg.model.depth, cfg.task.m2, cfg.task.sample_rate) == ("plsc", 50, 0.5, 1)
    assert isinstance(cfg.data, random_faces.Settings) and schedule.peak(cfg.optim, 128) == pytest.approx(0.0125)
