"""Each recipe equals the training that its `upstream` names: values that were recorded by running that code.

tests/golden/README.txt says how. Losses and their gradients are compared in every framework (upstream_cases.py).
docs/models.md lists the largest differences.
"""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.configs.upstream import RECORDED, check, recipe
from tests.helpers import frameworks
from tests.helpers.draws import GivenDraws
from zoo.data.augment import moves
from zoo.data.datasets import faces, imagenet
from zoo.models.initializers import Initializer
from zoo.run import schedule

RECIPES = sorted(RECORDED)
IMAGENET = ("resnet50_imagenet", "resnet50_imagenet_v1")
PICTURES = ("wide", "tall", "small")
SIZE, SHORT_SIDE = 28, 32  # of the recorded pictures, in place of 224 and 256


def lr_schedule(name, **changes):
    """Return the learning rate of the published run as a function of the step, and the run's clock."""
    config, recorded = recipe(name).config, recipe(name).recorded
    clock = replace(schedule.clock(config.train, recorded.samples, recorded.processes), **changes)
    return schedule.lr_schedule(config.optim, config.train, clock), clock


@pytest.mark.parametrize("name", RECIPES)
def test_learning_rate_factor_and_decay_of_every_parameter(name):
    spec, values, arch = recipe(name).spec, recipe(name).values, recipe(name).arch
    decay = recipe(name).config.optim.weight_decay
    if "groups/names" in values:
        names = [recipe(name).canonical(key) for key in values["groups/names"]]
        recorded = dict(zip(names, zip(values["groups/lr"], values["groups/decay"])))
    else:  # PLSC: one regularization for all
        recorded = dict.fromkeys(recipe(name).parameters(), (1.0, float(values["optimizer/decay"])))
    assert set(recorded) == recipe(name).parameters()
    for key, (factor, expected_decay) in recorded.items():
        lr_scale, decay_scale = spec.lr_and_decay_scale(arch, key)
        assert lr_scale == factor, key
        assert factor == 0 or decay_scale * decay == expected_decay, key


@pytest.mark.parametrize("name", ["deeplabv3plus_cityscapes", "deeplabv3plus_cityscapes_769", "arcface_ms1m"])
def test_learning_rate_at_recorded_steps(name):
    lr, _ = lr_schedule(name)
    steps, expected = recipe(name).values["lr/steps"], recipe(name).values["lr/values"]
    assert len(steps) == 20
    for step, value in zip(map(int, steps), expected):
        check(f"learning rate of step {step}", lr(step), value, 1e-12)


def test_learning_rate_of_a_run_that_ends_before_the_first_milestone():
    values = recipe("arcface_synthetic").values
    before = float(values["lr/values"][values["lr/steps"] == 99_999][0])
    lr, clock = lr_schedule("arcface_synthetic")
    assert {lr(step) for step in range(clock.steps)} == {before} == {values["lr/values"][0]} and clock.steps == 150


@pytest.mark.parametrize("name", IMAGENET)
def test_learning_rate_of_recorded_epochs(name):
    lr, clock = lr_schedule(name)
    epochs, expected = recipe(name).values["lr/epochs"], recipe(name).values["lr/values"]
    assert len(epochs) == 20
    for epoch, value in zip(map(int, epochs), expected):
        first, after = (math.ceil(number * clock.samples / clock.global_batch) for number in (epoch, epoch + 1))
        for step in (first, (first + after) // 2, after - 1):
            check(f"learning rate of epoch {epoch}, step {step}", lr(step), value, 1e-13)


def test_learning_rate_of_insightface():
    """In updates of its run, which leaves out the last batch of each epoch, and the difference that this makes."""
    values = recipe("arcface_glint360k").values
    steps, expected = values["lr/steps"], values["lr/values"]
    lr, _ = lr_schedule("arcface_glint360k", steps=int(values["lr/total"]))
    assert len(steps) == 20
    for step, value in zip(map(int, steps), expected):
        check(f"learning rate of step {step} of {int(values['lr/total'])}", lr(step), value, 1e-11)
    lr, clock = lr_schedule("arcface_glint360k")
    assert clock.steps == 333_822 and int(values["lr/total"]) == 333_820
    check("learning rate, as a fraction of the highest", [lr(int(step)) for step in steps], expected, 6e-6)


def check_distribution(initializer: Initializer, size: int, mean: float, rms: float, largest: float) -> None:
    """Check recorded moments of a tensor against the distribution that it should be drawn from, to five sigma."""
    constants = {"zeros": 0.0, "ones": 1.0, "constant": initializer.scale}
    if initializer.distribution in constants:
        expected = constants[initializer.distribution]
        assert (mean, rms, largest) == pytest.approx((expected, abs(expected), abs(expected)))
        return
    is_normal = initializer.distribution == "normal"
    std = initializer.scale if is_normal else initializer.scale / 3**0.5
    assert abs(mean) <= 5 * std / size**0.5
    assert abs(rms / std - 1) <= 5 * (0.5 if is_normal else 0.2) ** 0.5 / size**0.5
    bound = 7 * std if is_normal else initializer.scale * (1 + 1e-6)
    assert largest <= bound and (is_normal or largest >= initializer.scale * (1 - 16 / size))


@pytest.mark.parametrize("name", RECIPES)
def test_initial_values_have_the_recorded_distribution(name):
    spec, arch, values = recipe(name).spec, recipe(name).arch, recipe(name).values
    shapes = spec.shapes(arch)
    recorded = [values[f"init/{key}"] for key in ("names", "mean", "std", "max")]
    assert {recipe(name).canonical(key) for key in recorded[0]} >= recipe(name).parameters() - {"head.weight"}
    for key, *moments in zip(*recorded):
        canonical = recipe(name).canonical(key)
        size = math.prod(shapes[canonical]) if canonical != "head.weight" else 3000 * 512
        check_distribution(spec.initializer(arch, canonical, shapes[canonical]), size, *map(float, moments))
    if "init/head" in values:  # PLSC's class matrix, which is drawn where it is sharded
        assert spec.initializer(arch, "head.weight", shapes["head.weight"]).scale == pytest.approx(values["init/head"])


@pytest.mark.parametrize("name", IMAGENET)
def test_random_crops_of_recorded_draws(name):
    config, values = recipe(name).config.data, recipe(name).values
    for (width, height), draws, (top, left, rows, columns) in zip(
        values["crop/sizes"], values["crop/draws"], values["crop/boxes"]
    ):
        box = moves.random_box(int(width), int(height), config.scale, config.ratio, GivenDraws(*draws))
        assert box == (left, top, columns, rows)


@pytest.mark.parametrize("name", IMAGENET)
@pytest.mark.parametrize("picture", PICTURES)
def test_pixels_of_recorded_pictures(tmp_path, monkeypatch, name, picture):
    values = recipe(name).values
    Image.fromarray(values[f"picture/{picture}/image"]).save(tmp_path / "a.png")
    sizes = {"size": SIZE, "eval_resize": SHORT_SIDE}
    settings = replace(recipe(name).config.data, root=str(tmp_path), resample="exact", **sizes)
    top, left, rows, columns = map(int, values[f"picture/{picture}/box"])
    monkeypatch.setattr(moves, "random_box", lambda *_, **__: (left, top, columns, rows))
    entries = [imagenet.LabeledPath("a.png", 0)]
    train, val = (imagenet.ImageSplit(settings, entries, ("a",), training) for training in (True, False))
    plain, mirrored = (train.sample(0, GivenDraws(draw))["image"] for draw in (0.5, 0.49))
    np.testing.assert_array_equal(plain, values[f"picture/{picture}/train"])
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])
    np.testing.assert_array_equal(val.sample(0, GivenDraws())["image"], values[f"picture/{picture}/val"])


@pytest.mark.parametrize("name", IMAGENET)
def test_normalized_values_of_a_recorded_picture(name):
    config, values = recipe(name).config.data, recipe(name).values
    pixels = values["picture/wide/val"].astype(np.float64) / 255
    normalized = (pixels - np.array(config.mean)) / np.array(config.std)
    check("normalized values", np.moveaxis(normalized, -1, 0), values["normalized"], 3e-7)
    assert (config.size, config.short_side, config.eval_crop, config.reduce) == (224, 256, 224, False)


class OneFace:
    """Source of one encoded face."""

    def __init__(self, pixels):
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "PNG")
        self.content = content.getvalue()

    def encoded_and_label(self, row):
        return self.content, 0


@pytest.mark.parametrize("name", ["arcface_ms1m", "arcface_glint360k"])
def test_normalized_values_of_a_recorded_face(name):
    values = recipe(name).values
    settings = replace(recipe(name).config.data, size=values["picture/image"].shape[0])
    split = faces.FaceSplit(settings, OneFace(values["picture/image"]), range(1), range(1), ())
    field = split.fields[0]
    for draw, case in ((0.5, "plain"), (0.49, "flipped")):
        pixels = split.sample(0, GivenDraws(draw))["image"].astype(np.float64) / 255
        normalized = (pixels - np.array(field.mean)) / np.array(field.std)
        check(f"normalized values, {case}", np.moveaxis(normalized, -1, 0), values[f"picture/{case}"], 2e-7)


@pytest.mark.parametrize("name", ["deeplabv3plus_cityscapes", "deeplabv3plus_cityscapes_769"])
def test_settings_of_mmsegmentation(name):
    """Its transforms with these settings: tests/data/datasets/test_segmentation.py."""
    config = recipe(name).config
    prefix = "settings/769x769/" if name.endswith("769") else "settings/512x1024/"
    recorded = {
        key.removeprefix(prefix): value.tolist() for key, value in recipe(name).values.items() if key.startswith(prefix)
    }
    aligned, dropout = [float(config.model.align_corners)] * 2, [config.model.dropout] * 2
    data, task, train = config.data, config.task, config.train
    expected = {
        "crop": list(data.crop),
        "base_size": list(data.base_size),
        "scale": list(data.scale),
        "max_share": data.max_share,
        "flip": 0.5 * data.flip,
        "mean": pytest.approx([255 * value for value in data.mean]),
        "std": pytest.approx([255 * value for value in data.std]),
        "batch": train.batch,
        "window": list(task.window or ()),
        "stride": list(task.stride or ()),
        "align_corners": aligned,
        "dropout": dropout,
        "momentum": config.optim.momentum,
        "steps": train.steps,
    }
    assert recorded == expected and data.photometric and train.sync_bn and config.optim.clip_norm is None


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("configs.upstream_cases"))
def test_loss_and_gradient(framework, module, case):
    frameworks.check(framework, module, case)
