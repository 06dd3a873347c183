"""Cases of the bare loop of `zoo bench update` in JAX."""

import inspect
from unittest import mock

import numpy as np

from zoo.bench.bare import jax as bare
from zoo.run.job import assemble, join, sample_batch
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.run.resume import restore
from zoo.trainer.jax import create
from zoo.trainer.jax.model import to_canonical

COMMON = ("data.name=synthetic", "data.workers=0", "train.batch=4", "train.global_batch=4", "data.num_classes=9")
RECIPES = {
    "tsm_demo": ("data.kind=clip", "data.size=32", "data.segments=2", "model.width=8", "model.dropout=0.5"),
    "deeplabv3plus_demo": (
        *("data.kind=scene", "data.crop=[32,48]", "data.base_size=[32,48]", "model.width=8", "model.head_width=16"),
        *("model.low_width=8", "model.aux_width=8"),
    ),
    "arcface_synthetic": (
        *("data.size=16", "data.val_samples=10", "model.variant=insightface", "model.depth=18", "model.width=8"),
        *("model.embedding=8", "model.dropout=0", "task.scale=8", "train.eval_batch=10"),
    ),
}


def check(recipe, *changes):
    """Compare the tensors of both loops after two updates that clip, from the same weights."""
    settings = [*COMMON, *RECIPES[recipe], "target=null", "optim.clip_norm=0.1", *changes]
    request = resolve_recipe(Options(recipe, settings, framework="jax", device="cpu"))
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, lambda line: None)
    before = {name: np.array(array) for name, array in job.trainer.state_dict().items()}
    load_model_class, head = bare.load_model_class, before.get("head.weight")

    def loaded(name, framework):
        def build(arch):
            return create(load_model_class(name, framework), arch, before)

        return build

    batch = sample_batch(job)
    with mock.patch.multiple(bare, load_model_class=loaded, LR=0.1):
        if head is None:
            loop = bare.loop(job, batch)
        else:
            with mock.patch.object(bare.jax.random, "normal", lambda key, shape: head / 0.01):
                loop = bare.loop(job, batch)
    for step in range(2):
        loop()
        job.trainer.step([batch], 0.1, step)
    weights = dict(bare.nnx.to_flat_state(inspect.getclosurevars(loop).nonlocals["state"][0]))
    after = job.trainer.state_dict()
    for path, variable in weights.items():
        name = bare.parameter_name(path)
        found, change = to_canonical(np.asarray(variable[...]), path), after[name] - before[name]
        difference = np.abs(found - before[name] - change).max()
        assert difference <= 1e-2 * np.abs(change).max() + 1e-7, name
    assert {bare.parameter_name(path) for path in weights} == job.trainer.state.weights.keys()


def case_clips(_):
    check("tsm_demo", "optim.name=sgd_nesterov")


def case_scenes_by_adamw(_):
    check(
        "deeplabv3plus_demo", "optim.name=adamw", "optim.lr=0.1", "optim.eps=1e-2"
    )  # beside which rounding of gradients is small


def case_faces(_):
    check("arcface_synthetic")
