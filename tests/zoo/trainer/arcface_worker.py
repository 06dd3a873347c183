"""What one framework computes for tests/zoo/models/arcface/test_spec.py, in a process of its own: its arrays go into a file.

python -m tests.zoo.trainer.arcface_worker FRAMEWORK FILE
"""

import importlib
import math
import sys

import numpy as np

from data.batch import Field
from tests.zoo.models.arcface.golden import SIDE, drawn, pictures
from zoo.models import load_model_class
from zoo.models.arcface import spec
from zoo.tasks.classify import CrossEntropy
from zoo.trainer import load_backend
from zoo.trainer.protocol import Launch, Mode, Plan

ROWS, RATE, DECAY = 4, 0.01, 1e-3
SMALL = dict(depth=18, width=8, embedding=16, num_classes=3)
NETS = {
    "insightface": spec.Arch(size=32, **SMALL),
    "insightface_odd": spec.Arch(size=45, **SMALL),
    "insightface_dropout": spec.Arch(size=32, dropout=0.25, **SMALL),
    "plsc": spec.Arch(variant="plsc", size=32, **SMALL),
    "plsc_deep": spec.Arch(variant="plsc", size=40, **{**SMALL, "depth": 50}),
}
UPDATES = ("insightface/plain", "insightface/synchronised", "plsc/plain")


class Worker:
    def __init__(self, framework: str):
        self.framework, self.backend = framework, load_backend(framework)
        self.world = self.backend.start(Launch(), "cpu")

    def trainer(self, arch: spec.Arch, image: Field, compiled: bool = False, sync: bool = False):
        """A trainer that takes the embedding for logits: it is the net that is looked at here."""
        noise = spec.dropout_masks(arch)
        fields = (image, Field("label", (), "int64"), *(source.field for source in noise))

        def param_group(name):
            factor, decay = spec.lr_and_decay_scale(arch, name)
            return factor, DECAY * decay

        plan = Plan(
            fields,
            tuple(source.name for source in noise),
            param_group,
            self.world.resolve_mode(Mode("fp32", None, None, compiled)),
            sync_bn=sync,
        )
        trainer = self.backend.Trainer(
            load_model_class("arcface", self.framework), arch, CrossEntropy(0.0), plan, self.world
        )
        trainer.load_state_dict(
            {name: drawn(name, shape) for name, shape in spec.shapes(arch).items() if name != spec.HEAD_WEIGHT}
        )
        return trainer

    def small(self, name: str, compiled: bool = False, sync: bool = False):
        """A trainer of NETS, and a batch for it."""
        arch, rng = NETS[name], np.random.default_rng(3)
        image = Field("image", (arch.size, arch.size, 3), "uint8", (0.5,) * 3, (0.5,) * 3)
        batch = {
            "image": rng.integers(0, 256, (ROWS, *image.shape), np.uint8),
            "label": rng.integers(0, arch.embedding, ROWS),
            **{source.name: np.stack([source.draw(rng) for _ in range(ROWS)]) for source in spec.dropout_masks(arch)},
        }
        return self.trainer(arch, image, compiled, sync), batch

    def both_modes(self, trainer, evaluated: dict[str, np.ndarray], trained: dict[str, np.ndarray]):
        """Embeddings of an evaluation, then those of training and the running statistics after it."""
        found = {"eval": trainer.predict(trainer.to_device(evaluated))}
        device_batch = trainer.to_device(trained)
        prepare = trainer.preprocess if self.framework == "mindspore" else trainer.preprocess
        inputs = [prepare(device_batch["image"]), *(device_batch[name] for name in trainer.plan.dropout_masks)]
        if self.framework == "mindspore":
            found["train"] = trainer.train_forward(*inputs).asnumpy()
        else:
            trainer._train_mode()
            output = trainer.train_forward(inputs) if self.framework == "paddle" else trainer.train_forward(*inputs)
            found["train"] = output.detach().numpy()
        found.update((name, value) for name, value in trainer.state_dict().items() if ".running_" in name)
        return found

    def nets(self) -> dict[str, np.ndarray]:
        found = {}
        for name in NETS:
            trainer, batch = self.small(name)
            result = self.both_modes(trainer, batch, batch)
            result.update((f"shape/{param.name}", np.array(param.shape)) for param in trainer.params)
            found.update((f"{name}/{key}", value) for key, value in result.items())
        return found

    def golden(self) -> dict[str, np.ndarray]:
        """What tests/zoo/models/arcface/golden.py has a record of, for the case r18."""
        trainer = self.trainer(spec.Arch(depth=18), Field("image", (3, SIDE, SIDE), "float32"))
        found = self.both_modes(trainer, {"image": pictures()[:2]}, {"image": pictures()})
        return {f"golden/{key}": value for key, value in found.items()}

    def parameters(self) -> dict[str, np.ndarray]:
        names = importlib.import_module(f"zoo.trainer.{self.framework}.names")
        Model = load_model_class("arcface", self.framework)
        return {
            f"parameters/{variant}": np.array(
                sum(
                    math.prod(tensor.shape)
                    for name, tensor in names.named_tensors(Model(spec.Arch(variant=variant))).items()
                    if ".running_" not in name
                )
            )
            for variant in spec.NUM_PARAMETERS
        }

    def update(self, case: str) -> dict[str, np.ndarray]:
        """Numbers and all tensors of one update; MindSpore compiles one of them, which takes it longest."""
        name, kind = case.split("/")
        trainer, batch = self.small(name, self.framework == "mindspore" and name == "plsc", kind == "synchronised")
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], RATE, 0))
        found = {
            **trainer.state_dict(),
            "loss": np.asarray(numbers["loss"]),
            "grad_norm": np.asarray(numbers["grad_norm"]),
        }
        return {f"update/{case}/{key}": value for key, value in found.items()}


def main(framework: str, path: str) -> None:
    worker = Worker(framework)
    found = {**worker.nets(), **worker.golden(), **worker.parameters()}
    for case in UPDATES:
        found.update(worker.update(case))
    np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
