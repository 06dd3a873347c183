"""Compute updates of small models of every family in fp64, for tests/zoo/trainer/test_exact.py.

python -m tests.zoo.trainer.exact_worker FRAMEWORK FILE
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.helpers import frameworks
from tests.zoo.models.tsm.golden import drawn
from tests.zoo.trainer.trainer_setup import make_model, random_inputs
from zoo.models import load_spec
from zoo.optim import sgd
from zoo.tasks import load_task
from zoo.trainer.plan import Mode

CLASSES = 7
LRS = (0.05, 0.03)
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model, its input, the task's settings, settings of the plan, and the learning rates of updates."""

    model: str
    options: dict[str, Any]
    shape: tuple[int, ...]  # of a sample
    task: dict[str, Any]
    plan: dict[str, Any] = field(default_factory=dict)
    lrs: tuple[float, ...] = LRS[:1]  # in fp64 MindSpore takes seconds for an update


CASES = {
    "resnet": Case(
        "resnet",
        dict(depth=18, width=4, padding="same"),
        (33, 32, 3),
        dict(label_smoothing=0.1),
        dict(sync_bn=True, optimizer=sgd.Settings(momentum=0.8)),
        LRS,
    ),
    "tsm": Case("tsm", dict(depth=18, width=4, dropout=0.3, temporal_pool=True), (4, 24, 24, 3), {}),
    "nonlocal": Case("tsm", dict(depth=50, width=4, non_local=True, dropout=0.0), (2, 32, 32, 3), {}),
    "mmseg": Case(
        "deeplabv3plus",
        dict(depth=18, width=4, head_width=8, low_width=4, aux_width=4),
        (49, 33, 3),
        dict(ohem_kept=300, ohem_threshold=0.3),
    ),
    "paddleseg": Case(
        "deeplabv3plus",
        dict(depth=18, width=4, head_width=8, low_width=4, variant="paddleseg", align_corners=True),
        (33, 49, 3),
        dict(average="all", ohem_kept=200),
    ),
    "arcface": Case(
        "arcface",
        dict(depth=18, width=4, embedding=8, variant="plsc"),
        (40, 40, 3),
        dict(scale=30.5, m3=0.1, sample_rate=0.3, interclass=0.7),
        dict(clip_sharded=False),
    ),
}
COMPILED = ("resnet",)  # with MindSpore; compiling takes longer than the updates


def build(framework: str, case: Case, compile: bool = False):
    """Return a trainer and its batches."""
    backend, task = frameworks.adapter(framework), load_task(load_spec(case.model).TASK)
    classes = 60 if case.model == "arcface" else CLASSES
    mode = backend.WORLD.resolve_mode(Mode("fp64", compile=None if framework == "jax" else compile))
    plan = {"clip_norm": 0.3, "output": task.output(task.Settings(**case.task)), **case.plan}
    trainer, _ = make_model(backend, case.model, case.options, case.shape, classes, case.task, mode, **plan)
    trainer.load_state_dict({param.name: drawn(param.name, param.shape) for param in trainer.params})
    batches = [random_inputs(trainer, classes, seed=seed) for seed in range(len(case.lrs) + 1)]
    if case.model == "deeplabv3plus":
        for batch in batches:
            batch["label"][:, :5] = 255
    return trainer, batches


def compute(trainer, batches: list[Arrays], lrs: tuple[float, ...] = LRS) -> Arrays:
    """Do an update for each learning rate; return losses, gradients, the state and a prediction."""
    rows, arrays = [], {}
    for step, (lr, batch) in enumerate(zip(lrs, batches)):
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], lr, step))
        rows.append((numbers["loss"], numbers["grad_norm"]))
        arrays.update((f"gradient{step}/{name}", array) for name, array in trainer.gradients().items())
        state = {name: np.array(array) for name, array in trainer.state_dict().items()}
        arrays.update((f"state{step}/{name}", array) for name, array in state.items() if not name.startswith("scaler"))
    pixels = trainer.plan.fields[0].name
    prediction = trainer.predict(trainer.to_device({pixels: batches[-1][pixels]}))
    return {"rows": np.array(rows), "prediction": prediction, **arrays}


def compute_all(framework: str) -> Arrays:
    """Return the arrays of every case."""
    arrays = {}
    for name, case in CASES.items():
        trainer, batches = build(framework, case, framework == "mindspore" and name in COMPILED)
        arrays.update(
            (f"{name}/{key}", np.ascontiguousarray(array)) for key, array in compute(trainer, batches, case.lrs).items()
        )
    return arrays


if __name__ == "__main__":
    save_file(compute_all(sys.argv[1]), sys.argv[2])
