"""One update of each model with a tiny architecture, by the trainer that train.py uses; run in a child process."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.doctor.worker import Tell
from zoo.run import cli, restore
from zoo.run.job import assemble, join, sample_batch

LR = 0.01  # recipes begin their warm-up with 0, which changes no weight
# A static scale: with the recipes' first one, tiny models may overflow in fp16 and skip the update.
COMMON = ("data.name=synthetic", "data.workers=0", "train.batch=4", "train.global_batch=4", "optim.loss_scale=128")


class Case(NamedTuple):
    """A recipe and its changes: small enough for a second of computing."""

    recipe: str
    overrides: tuple[str, ...]


CASES = {  # model -> case
    "tsm": Case(
        "configs/tsm_demo.yaml",
        ("data.kind=clip", "data.size=32", "data.segments=4", "data.num_classes=5", "model.width=8"),
    ),
    "resnet": Case(
        "configs/resnet50_demo.yaml", ("data.kind=image", "data.size=48", "data.num_classes=5", "model.width=8")
    ),
    "deeplabv3plus": Case(
        "configs/deeplabv3plus_demo.yaml",
        (
            "data.kind=scene",
            "data.crop=[48, 64]",
            "data.base_size=[48, 64]",
            "data.num_classes=5",
            "model.width=8",
            "model.head_width=16",
            "model.low_width=8",
            "model.aux_width=8",
        ),
    ),
    "arcface": Case(
        "configs/arcface_demo.yaml",
        ("data.kind=face", "data.size=32", "data.num_classes=7", "model.width=8", "model.embedding=16"),
    ),
}


def probe(tell: Tell, framework: str, device: str, precision: str, folder: str) -> None:
    """Do an update of each model; weights and batch are the same in every framework.

    A model's arrays go into <folder>/<model>.npz: before/<name> and after/<name>, parameters and running statistics.
    Facts: <model>, its loss and the norm of its gradient.
    """
    for model, case in CASES.items():
        tell(stage=f"updating {model}")
        overrides = [*COMMON, f"train.precision={precision}", *case.overrides]
        request = cli.request(case.recipe, overrides, framework=framework, device=device)
        job = assemble(request, join(request, {}))
        restore.restore(request.config, job, None, lambda line: None)
        arrays = {f"before/{name}": array for name, array in _weights(job.trainer).items()}
        numbers = job.trainer.read(job.trainer.step([sample_batch(job)], LR, 0))
        arrays.update({f"after/{name}": array for name, array in _weights(job.trainer).items()})
        np.savez(Path(folder, f"{model}.npz"), **arrays)
        # NaN is no JSON
        values = {name: numbers[name] for name in ("loss", "grad_norm", "skipped")}
        tell(**{model: {name: value if math.isfinite(value) else None for name, value in values.items()}})


def _weights(trainer) -> dict[str, np.ndarray]:
    state = trainer.state_dict()
    return {param.name: np.array(state[param.name]) for param in trainer.params}
