"""The recipes of TSM against recorded runs of mit-han-lab/temporal-shift-module; see tests/golden/README.txt."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.configs import tsm_cases
from tests.configs.tsm_cases import CLIPS, DRAWS, LENGTHS, RECIPES, SEGMENTS, STRIDE
from tests.helpers.draws import GivenDraws
from tests.helpers.paths import CONFIGS, ROOT
from zoo.config import loader
from zoo.data.datasets import kinetics
from zoo.data.formats.lists import LabeledPath
from zoo.data.transforms import clips
from zoo.models.tsm import spec
from zoo.run import schedule
from zoo.run.request import FIND
from zoo.trainer.objectives import Classification
from zoo.trainer.pixels import scale_and_offset
from zoo.trainer.torch import ops

GOLDEN = dict(np.load(ROOT / "tests/golden/tsm_recipe.npz"))


def read(name):
    return loader.build(loader.read(str(CONFIGS / f"{name}.yaml")), FIND)[0]


def learning_rate(name):
    """Return the learning rate by step, and the clock of a run of the batch that the recipe states."""
    cfg = read(name)
    clock = schedule.clock(cfg.train, RECIPES[name].clips, cfg.optim.base_batch // cfg.train.batch)
    return schedule.lr_schedule(cfg.optim, cfg.train, clock), clock


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_names_the_recorded_commit(name):
    assert read(name).upstream.commit == GOLDEN["commit"]


@pytest.mark.parametrize("name", RECIPES)
def test_learning_rate_and_weight_decay_of_every_tensor(name):
    cfg, (lr, _) = read(name), learning_rate(name)
    recorded = {key: tuple(row) for key, row in zip(GOLDEN[f"{name}/names"], GOLDEN[f"{name}/groups"])}
    shapes = spec.shapes(spec.Arch(num_classes=7))
    names = [key for key in shapes if not key.endswith(("running_mean", "running_var"))]
    assert sorted(names) == sorted(recorded) and len(names) == 161
    for key in names:
        lr_scale, decay_scale = spec.lr_and_decay_scale(cfg.model, key)
        assert (lr_scale * lr(0), decay_scale * cfg.optim.weight_decay) == pytest.approx(recorded[key], rel=1e-15), key


@pytest.mark.parametrize("name", RECIPES)
def test_learning_rate_in_the_course_of_the_run(name):
    lr, clock = learning_rate(name)
    assert clock.global_batch == GOLDEN[f"{name}/settings"][4]
    for epoch, recorded in zip(tsm_cases.EPOCHS, GOLDEN[f"{name}/lr"]):
        step = math.ceil(epoch * clock.samples / clock.global_batch)
        assert step < clock.steps and lr(step) == pytest.approx(recorded, rel=1e-15), epoch


@pytest.mark.parametrize("name", RECIPES)
def test_settings(name):
    cfg = read(name)
    momentum, dampening, nesterov, clip_norm, batch, epochs, dropout, segments = GOLDEN[f"{name}/settings"]
    assert (dampening, nesterov) == (0, 0)  # the trainers have no others
    assert (cfg.optim.momentum, cfg.optim.clip_norm, cfg.optim.base_batch) == (momentum, clip_norm, batch)
    assert (cfg.train.epochs, cfg.model.dropout, cfg.data.segments) == (epochs, dropout, segments)
    assert cfg.data.flip == GOLDEN[f"{name}/flips"] and cfg.optim.warmup.value == 0 and not cfg.model.partial_bn
    assert (cfg.data.size, cfg.data.short_side) == tuple(GOLDEN[f"{name}/sizes"]) == (224, 256)


def test_the_loss():
    logits, labels = map(torch.from_numpy, tsm_cases.logits_and_labels())
    cfg = read("tsm_k400")
    objective = Classification(ops, cfg.task, None, torch.float32, torch.float64)
    batch = {"label": labels}
    assert objective.total(logits, labels) / objective.count(batch) == pytest.approx(float(GOLDEN["loss"]), rel=1e-7)


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize(
    "name, sample",
    {
        "train": clips.uniform_train,
        "dense_train": clips.dense_train,
        "dense_val": clips.dense_train,
    }.items(),
)
def test_frames_that_are_drawn(name, sample, segments):
    rows = zip(LENGTHS, GOLDEN[f"frames/{segments}/{name}"], GOLDEN[f"frames/{segments}/{name}/draws"])
    for length, frames, draws in rows:
        drawn = GivenDraws(*map(int, draws[draws >= 0]))
        assert np.array_equal(sample(length, segments, drawn) + 1, frames) and drawn.draws == [], length


@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize(
    "name, sample",
    {
        "val": clips.uniform_val,
        "test": clips.uniform_test,
        "twice": clips.twice_test,
        "dense": clips.dense_test,
    }.items(),
)
def test_frames_of_evaluations(name, sample, segments):
    for length, frames in zip(LENGTHS, GOLDEN[f"frames/{segments}/{name}"]):
        assert np.array_equal(sample(length, segments).ravel() + 1, frames), length


def test_boxes_of_multi_scale_crops():
    """Of frames that are not smaller than the crop; see the recipe."""
    for width, height, pair, corner, *box in GOLDEN["boxes"]:
        drawn = clips.multi_scale_box(width, height, 224, (1.0, 0.875, 0.75, 0.66), GivenDraws(int(pair), int(corner)))
        assert drawn == tuple(box)


@pytest.fixture(params=CLIPS)
def frames(request):
    return request.param, tsm_cases.clip(request.param)


def prepared(frames, training, draws=(), **keys):
    """Return the pixels of a sample of tsm_k400's data set whose file holds these frames."""
    cfg = read("tsm_k400")
    split = kinetics.ClipSplit(
        replace(cfg.data, resample="exact", **keys), [LabeledPath("clip", 0)], ("only",), training
    )
    split._read = lambda clip, pick: frames[pick(len(frames)).ravel()]
    given = [value for part in draws for value in np.atleast_1d(part).tolist()]
    video = split.sample(0, GivenDraws(*(int(value) if value % 1 == 0 else value for value in given)))["video"]
    return video.reshape(-1, *video.shape[-3:]), split.fields[0]


def assert_as_recorded(key, pixels, field):
    """Compare some pixels, then a hash of all, then the values that the model gets."""
    assert np.array_equal(pixels[0, ::STRIDE, ::STRIDE], GOLDEN[f"{key}/pixels"])
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN[f"{key}/sha256"]
    scale, offset = scale_and_offset(field)
    normalized = (pixels[0].astype(np.float32) * scale + offset).transpose(2, 0, 1)
    recorded = GOLDEN[f"{key}/normalized"]
    assert np.abs(normalized[:, :: 2 * STRIDE, :: 2 * STRIDE] - recorded).max() < 1e-6


def test_training_samples(frames):
    name, frames = frames
    for number in range(DRAWS):
        key = f"{name}/train{number}"
        draws = GOLDEN[f"{key}/frame_draws"], GOLDEN[f"{key}/draws"]
        assert_as_recorded(key, *prepared(frames, True, draws))


def test_validation_samples(frames):
    name, frames = frames
    assert_as_recorded(f"{name}/val", *prepared(frames, False))


@pytest.mark.parametrize("name", ["landscape", "portrait"])
def test_samples_of_the_test_protocols(name):
    """Two clips x 3 crops of 256 pixels, and 10 crops of 224."""
    frames = tsm_cases.clip(name)
    keys = dict(eval_sampling="twice", eval_crops=3, eval_size=256)
    assert_as_recorded(f"{name}/full", *prepared(frames, False, **keys))
    assert_as_recorded(f"{name}/ten", *prepared(frames, False, eval_sampling="test", eval_crops=10))
