"""Checkpoints with drawn weights, of small models on small data sets; made without a framework."""

import os

from tests.helpers.paths import ROOT
from tests.zoo.models.drawing import drawn
from zoo import data
from zoo.config import loader
from zoo.data.demo import motion, portraits, shapes, streets
from zoo.models import load_spec, resolve_arch
from zoo.run.checkpoint import save_checkpoint
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

FACES = {"data.identities": 6, "data.shots": 2, "data.val_identities": 4, "data.val_shots": 3, "data.val_pairs": 20}
CLIPS = {"data.size": 32, "data.segments": 4, "data.train_clips": 8, "data.val_clips": 8}
SIZES = {
    "tsm": {"model.width": 8, **CLIPS},
    "tsm_mobilenet_v2": {"model.width": 8, **CLIPS},
    "resnet50": {"model.width": 8, "data.size": 32, "data.train_images": 8, "data.val_images": 8},
    "deeplabv3plus": {
        "model.width": 8,
        "model.head_width": 8,
        "model.low_width": 8,
        "model.aux_width": 8,
        "data.crop": [48, 64],
        "data.base_size": [64, 96],
        "data.train_images": 6,
        "data.val_images": 6,
    },
    "arcface": {"model.width": 8, "model.embedding": 16, "data.size": 32, "optim.warmup": "1 steps", **FACES},
}
RECIPES = {"tsm_mobilenet_v2": "tsm"}
MODELS = tuple(SIZES)
STEP = 7


def make_data(folder):
    """Make small demo sets; return their folders by name of the recipe."""
    roots = {recipe: os.path.join(folder, recipe) for recipe in ("tsm", "resnet50", "deeplabv3plus", "arcface")}
    motion.make(roots["tsm"], 8, 8)
    shapes.make(roots["resnet50"], 8, 8)
    streets.make(roots["deeplabv3plus"], 6, 6)
    sizes = {key[5:]: value for key, value in FACES.items()}
    portraits.make(portraits.Settings(root=roots["arcface"], size=32, **sizes))
    return roots


def make(folder, model, roots, **changes):
    """Write the checkpoint of a model with drawn weights.

    Args:
        folder: of the run, a new one.
        model: one of MODELS.
        roots: of the demo sets.
        changes: of settings; `model__depth=34` is model.depth=34.

    Returns:
        The folder of the checkpoint.
    """
    recipe = RECIPES.get(model, model)
    settings = {**SIZES[model], "data.root": roots[recipe], "data.workers": 0}
    settings |= {key.replace("__", "."): value for key, value in changes.items()}
    if recipe != model:
        settings |= {"model.name": model}
    request = resolve_recipe(
        Options(str(ROOT / f"configs/{recipe}_demo.yaml"), [f"{k}={v}" for k, v in settings.items()])
    )
    cfg, spec = request.config, load_spec(request.resolved["model.name"].value)
    train_set, val_set = data.find(request.resolved["data.name"].value).load(cfg.data)
    arch = resolve_arch(spec, cfg.model, train_set.fields, len(train_set.classes))
    tensors = {name: drawn(name, shape) for name, shape in spec.shapes(arch).items()}
    classes = [] if isinstance(val_set.classes, range) else list(val_set.classes)
    record = {"classes": classes, "recipe": loader.render(request.resolved)}
    return save_checkpoint(str(folder), STEP, tensors, record, 1)
