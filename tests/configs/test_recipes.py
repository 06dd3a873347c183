"""Recipes of published results: their hyper-parameters (learning rates: test_upstream.py, test_reports.py)."""

import operator

import pytest

from tests.helpers.paths import CONFIGS
from zoo.config import loader
from zoo.run import schedule
from zoo.run.request import FIND


def read(name):
    return loader.build(loader.read(str(CONFIGS / f"{name}.yaml")), FIND)[0]


def lr_schedule(cfg, train_samples, world_size):
    """Return the learning rate as a function of the step, and the number of steps."""
    clock = schedule.clock(cfg.train, train_samples, world_size)
    return schedule.lr_schedule(cfg.optim, cfg.train, clock), clock.steps


NUMBERS = {  # by section: what test_upstream.py does not compare with upstream's code
    "resnet50_imagenet": {
        "train": dict(epochs=90, batch=256),
        "optim": dict(momentum=0.875, clip_norm=None),
        "task": dict(label_smoothing=0.1),
        "model": dict(depth=50, width=64, pretrained=None),
        "data": dict(size=224, short_side=256, scale=(0.08, 1.0), flip=True),
    },
    "resnet50_imagenet_v1": {
        "train": dict(epochs=90, batch=32),
        "optim": dict(momentum=0.9),
        "task": dict(label_smoothing=0.0),
        "model": dict(pretrained=None),
    },
    "arcface_ms1m": {
        "model": dict(variant="plsc", depth=50),
        "data": dict(normalisation="plsc", size=112, flip=True),
        "task": dict(scale=64, m1=1, m2=0.5, m3=0, threshold=False, sample_rate=1),
        "optim": dict(momentum=0.9, clip_norm=None),
        "optim.warmup": dict(value=0),
        "train": dict(epochs=120, batch=128),
    },
    "arcface_glint360k": {
        "model": dict(variant="insightface", depth=100),
        "data": dict(normalisation="insightface"),
        "task": dict(scale=64, m1=1, m2=0, m3=0.4, sample_rate=1),
        "optim": dict(momentum=0.9, clip_norm=5, clip_sharded=False),
        "train": dict(epochs=20, batch=128),
    },
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_the_recipe(name):
    config = read(name)
    for section, expected in NUMBERS[name].items():
        found = operator.attrgetter(section)(config)
        assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_names_its_upstream_and_a_demo_has_none(path):
    upstream = read(path.relative_to(CONFIGS).with_suffix("")).upstream
    assert (upstream is None) == path.stem.endswith("_demo")
    assert upstream is None or upstream.train_samples is not None  # for --plan
