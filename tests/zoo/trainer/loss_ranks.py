"""Updates with the losses of zoo/losses, whose samples several processes share; sharded_worker.py runs them.

Linear models of samples and of pixels. The processes have different numbers of labelled pixels and images.
"""

import importlib
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from zoo.data.batch import LABEL, SOFT_LABEL, Field, soft_label
from zoo.losses import load_loss
from zoo.tasks import classify, segment
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode, ParamGroup, Plan

INPUTS, CLASSES, SIZE, GLOBAL_BATCH, ACCUMULATE, STEPS, LR = 3, 3, (6, 7), 8, 2, 2, 0.3
WEIGHTS = (0.5, 2.0, 1.0)


class Case(NamedTuple):
    task: Any
    loss: str
    options: dict[str, Any]


CASES = {
    "soft labels": Case(classify, "cross_entropy", {"class_weights": WEIGHTS}),
    "weighted": Case(segment, "cross_entropy", {"class_weights": WEIGHTS}),
    "focal": Case(segment, "focal", {"class_weights": WEIGHTS}),
    "dice": Case(segment, "dice", {}),
    "lovasz": Case(segment, "lovasz", {"class_weights": WEIGHTS}),
}

# MindSpore takes seconds for the first calls of each loss; these have each kind of count: samples, weights and images.
IN_MINDSPORE = ("soft labels", "weighted", "dice")


def cases(framework: str) -> dict[str, Case]:
    """Return the cases that run in a framework."""
    return {name: case for name, case in CASES.items() if framework != "mindspore" or name in IN_MINDSPORE}


def global_batch(case: Case, step: int) -> dict[str, np.ndarray]:
    """Return the samples of all micro-batches and processes of an update."""
    rng = np.random.default_rng((7, step))
    valid = np.ones(GLOBAL_BATCH, np.uint8)
    if case.task is classify:
        x, labels = rng.standard_normal((GLOBAL_BATCH, INPUTS), np.float32), rng.integers(0, CLASSES, GLOBAL_BATCH)
        soft = rng.dirichlet(np.ones(CLASSES), GLOBAL_BATCH).astype(np.float32)
        return {"x": x, "label": labels, SOFT_LABEL: soft, "valid": valid}
    labels = rng.integers(0, CLASSES, (GLOBAL_BATCH, *SIZE)).astype(np.uint8)
    labels[0], labels[1, :4], labels[3, 1:] = (segment.IGNORE_INDEX,) * 3
    return {"x": rng.standard_normal((GLOBAL_BATCH, INPUTS, *SIZE), np.float32), "label": labels, "valid": valid}


def build(framework: str, world: Any, case: Case) -> Any:
    """Return a trainer with random weights."""
    if case.task is classify:
        name, fields = "Linear", (Field("x", (INPUTS,), "float32"), LABEL, soft_label(CLASSES))
    else:
        label = Field("label", SIZE, "uint8", missing=segment.IGNORE_INDEX)
        name, fields = "Pixels", (Field("x", (INPUTS, *SIZE), "float32"), label)
    mode = world.resolve_mode(Mode("fp32", compile=None if framework == "jax" else False))
    plan = Plan(fields, (), lambda name: ParamGroup(1.0, 0.0), mode, accumulate=ACCUMULATE)
    model = getattr(importlib.import_module(f"tests.zoo.trainer.{framework}.tiny"), name)
    objective = load_loss(case.task.Settings.task, case.loss)(**case.options)
    arch = SimpleNamespace(inputs=INPUTS, embedding=CLASSES)
    trainer = load_backend(framework).Trainer(model, arch, objective, plan, world)
    rng = np.random.default_rng(1)
    trainer.load_state_dict({param.name: rng.standard_normal(param.shape, np.float32) for param in trainer.params})
    return trainer


def train(framework: str, world: Any, group: Any, case: Case) -> dict[str, np.ndarray]:
    """Do some updates; return the losses, the norms of the gradients, and the state."""
    trainer, numbers = build(framework, world, case), []
    for step in range(STEPS):
        batch, size = global_batch(case, step), GLOBAL_BATCH // group.size // ACCUMULATE
        firsts = [(part * group.size + group.rank) * size for part in range(ACCUMULATE)]
        parts = [{name: array[first : first + size] for name, array in batch.items()} for first in firsts]
        row = trainer.read(trainer.step([trainer.to_device(part) for part in parts], LR, step))
        numbers.append((sum(group.all_gather(row["loss"])), row["grad_norm"]))
    losses, norms = np.array(numbers).T
    state = {name: np.array(array) for name, array in trainer.state_dict().items()}
    return {"loss": losses, "grad_norm": norms, **state}
