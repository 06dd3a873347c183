"""Compute ArcFace in one framework for tests/zoo/models/arcface/test_frameworks.py; the arrays go into a file.

python -m tests.zoo.trainer.arcface_worker FRAMEWORK FILE
"""

import math
import sys

import numpy as np

from tests.helpers import frameworks
from tests.zoo.models.arcface.golden import SIDE, drawn, input_images
from zoo.data.batch import LABEL, Field
from zoo.models import load_model_class
from zoo.models.arcface import spec
from zoo.tasks import classify
from zoo.trainer.plan import Mode, ParamGroup, Plan

BATCH, LR, DECAY = 4, 0.01, 1e-3
SMALL = dict(depth=18, width=8, embedding=16, num_classes=3)
MODELS = {
    "insightface": spec.Arch(size=32, **SMALL),
    "insightface_odd": spec.Arch(size=45, **SMALL),
    "insightface_dropout": spec.Arch(size=32, dropout=0.25, **SMALL),
    "plsc": spec.Arch(variant="plsc", size=32, **SMALL),
    "plsc_deep": spec.Arch(variant="plsc", size=40, **{**SMALL, "depth": 50}),
}
UPDATES = ("insightface/plain", "insightface/synchronized", "plsc/plain")
Arrays = dict[str, np.ndarray]


class Worker:
    """A framework's trainers of ArcFace models."""

    def __init__(self, framework: str):
        self.framework, self.backend = framework, frameworks.adapter(framework)

    def trainer(self, arch: spec.Arch, image: Field, compiled: bool = False, sync_bn: bool = False):
        """Return a trainer that takes the embedding for logits, so that the model alone is tested."""
        masks = spec.dropout_masks(arch)

        def param_group(name):
            factor, decay = spec.lr_and_decay_scale(arch, name)
            return ParamGroup(factor, decay * DECAY)

        world = self.backend.WORLD
        plan = Plan(
            (image, LABEL, *(mask.field for mask in masks)),
            tuple(mask.name for mask in masks),
            param_group,
            world.resolve_mode(Mode("fp32", None, None, compiled)),
            sync_bn=sync_bn,
        )
        model = load_model_class("arcface", self.framework)
        trainer = self.backend.Trainer(model, arch, classify.Settings(), plan, world)
        trainer.load_state_dict(
            {name: drawn(name, shape) for name, shape in spec.shapes(arch).items() if name != spec.HEAD_WEIGHT}
        )
        return trainer

    def small(self, name: str, compiled: bool = False, sync_bn: bool = False):
        """Return a trainer of MODELS and a batch for it."""
        arch, rng = MODELS[name], np.random.default_rng(3)
        image = Field("image", (arch.size, arch.size, 3), "uint8", (0.5,) * 3, (0.5,) * 3)
        batch = {
            "image": rng.integers(0, 256, (BATCH, *image.shape), np.uint8),
            "label": rng.integers(0, arch.embedding, BATCH),
            **{mask.name: np.stack([mask.sample(rng) for _ in range(BATCH)]) for mask in spec.dropout_masks(arch)},
        }
        return self.trainer(arch, image, compiled, sync_bn), batch

    def embeddings(self, trainer, eval_batch: Arrays, train_batch: Arrays) -> Arrays:
        """Return the embeddings of an evaluation, then those of training and the running statistics after it."""
        arrays = {"eval": trainer.predict(trainer.to_device(eval_batch))}
        (arrays["train"],) = self.backend.forward(trainer, train_batch, train=True)
        arrays.update((name, value) for name, value in trainer.state_dict().items() if ".running_" in name)
        return arrays

    def models(self) -> Arrays:
        arrays = {}
        for name in MODELS:
            trainer, batch = self.small(name)
            own = self.embeddings(trainer, batch, batch)
            own.update((f"shape/{param.name}", np.array(param.shape)) for param in trainer.params)
            arrays.update((f"{name}/{key}", value) for key, value in own.items())
        return arrays

    def golden(self) -> Arrays:
        """Return the embeddings that tests/zoo/models/arcface/golden.py has a record of, for the case r18."""
        trainer = self.trainer(spec.Arch(depth=18, num_classes=1), Field("image", (3, SIDE, SIDE), "float32"))
        arrays = self.embeddings(trainer, {"image": input_images()[:2]}, {"image": input_images()})
        return {f"golden/{key}": value for key, value in arrays.items()}

    def parameters(self) -> Arrays:
        """Return the number of parameters of each variant."""
        Model, arrays = load_model_class("arcface", self.framework), {}
        for variant in spec.NUM_PARAMETERS:
            shapes = self.backend.shapes(Model(spec.Arch(variant=variant)))
            sizes = [math.prod(shape) for name, shape in shapes.items() if ".running_" not in name]
            arrays[f"parameters/{variant}"] = np.array(sum(sizes))
        return arrays

    def update(self, case: str) -> Arrays:
        """Return numbers and all tensors of one update; MindSpore compiles one of them, which takes it longest."""
        name, statistics = case.split("/")
        compiled = self.framework == "mindspore" and name == "plsc"
        trainer, batch = self.small(name, compiled, statistics == "synchronized")
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], LR, 0))
        numbers = {key: np.asarray(numbers[key]) for key in ("loss", "grad_norm")}
        return {f"update/{case}/{key}": value for key, value in {**trainer.state_dict(), **numbers}.items()}


def main(framework: str, path: str) -> None:
    worker = Worker(framework)
    arrays = {**worker.models(), **worker.golden(), **worker.parameters()}
    for case in UPDATES:
        arrays.update(worker.update(case))
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
