"""Compute updates of a class matrix that is sharded over ranks, for tests/zoo/trainer/test_sharded.py.

A linear model under the margin objective, and those of loss_ranks.py; rank 0 writes the arrays. By a launcher:
python -m tests.zoo.trainer.sharded_worker FRAMEWORK FOLDER
"""

import importlib
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from tests.helpers.processes import connected
from tests.zoo.trainer import loss_ranks
from tests.zoo.trainer.optimizer_cases import Reference
from zoo import optim
from zoo.data.batch import LABEL, Field
from zoo.losses import load_loss
from zoo.models import initializers
from zoo.tasks import face
from zoo.trainer import load_backend, margin, sharding
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.state import slot_key

CLASSES, WIDTH, INPUTS, GLOBAL_BATCH, STEPS, LR, DECAY = 11, 6, 5, 24, 10, 0.3, 1e-2
WEIGHT, MOMENTUM = face.HEAD_WEIGHT, f"optimizer/momentum/{face.HEAD_WEIGHT}"


class Case(NamedTuple):
    task: tuple[tuple[str, Any], ...] = ()
    plan: tuple[tuple[str, Any], ...] = ()
    classes: int = CLASSES
    compute: str = "fp32"
    chunk: int | None = None  # logits that are held at once; None: all


OPTIMIZERS = ("adamw", "lars", "lamb")
EVERYWHERE = "clipped"  # the case for any number of ranks
NOT_IN_MINDSPORE = ("adamw", "lars", "chunked", "clipped apart")  # it compiles each for seconds
CASES = {
    "adaface, filter": Case(
        (("loss", "adaface"), ("h", 8.0), ("t_alpha", 0.3), ("interclass", 0.3)), (("accumulate", 2),)
    ),
    "clipped": Case((("loss", "cosface"),), (("clip_norm", 1.0),)),
    "fp64": Case((("interclass", 0.3),), (("clip_norm", 1.0),), compute="fp64"),
    "chunked": Case((("interclass", 0.3),), chunk=GLOBAL_BATCH * 2),
    "adamw": Case(plan=(("optimizer", optim.load_settings("adamw")(eps=1e-3)),)),
    "lars": Case(plan=(("optimizer", optim.load_settings("lars")()), ("clip_norm", 1.0))),
    "lamb": Case(plan=(("optimizer", optim.load_settings("lamb")(eps=1e-3)),)),
    "clipped apart": Case((("gradient", "straight"),), (("clip_norm", 0.2), ("clip_sharded", False))),
}
SAMPLED = Case((("sample_rate", 0.25),), classes=200)  # every rank samples its own rows: nothing to compare over ranks


def random_batch(step: int, classes: int):
    rng = np.random.default_rng((5, step))
    return rng.standard_normal((GLOBAL_BATCH, INPUTS), np.float32), rng.integers(0, classes, GLOBAL_BATCH)


class Run:
    """A trainer, and this rank's samples of every global batch."""

    def __init__(self, framework: str, world, group, case: Case):
        plan = Plan(
            (Field("x", (INPUTS,), "float32"), LABEL),
            (),
            lambda name: ParamGroup(1.0, DECAY),
            world.resolve_mode(Mode(case.compute)),
            seed=3,
            **dict(case.plan),
        )
        self.group, self.classes, self.accumulate = group, case.classes, plan.accumulate
        arch = SimpleNamespace(inputs=INPUTS, num_classes=case.classes, embedding=WIDTH)
        task = {"loss": "combined", "scale": 8.0, **dict(case.task)}
        objective = load_loss("face", task["loss"])(**task)
        model = importlib.import_module(f"tests.zoo.trainer.{framework}.tiny").Linear
        self.trainer = load_backend(framework).Trainer(model, arch, objective, plan, world)
        self.trainer.load_state_dict(
            {
                param.name: initializers.initialize(initializers.normal(0.5), 1, param.name, param.shape, param.rows)
                for param in self.trainer.params
            }
        )

    def step(self, step: int) -> dict[str, float]:
        """Do one update; return its numbers, with the loss summed over ranks."""
        x, labels = random_batch(step, self.classes)
        size = GLOBAL_BATCH // self.group.size // self.accumulate
        micro_batches = []
        for i in range(self.accumulate):
            rows = slice((i * self.group.size + self.group.rank) * size, None)
            batch = {"x": x[rows][:size], "label": labels[rows][:size], "valid": np.ones(size, np.uint8)}
            micro_batches.append(self.trainer.to_device(batch))
        numbers = self.trainer.read(self.trainer.step(micro_batches, LR, step))
        return {**numbers, "loss": sum(self.group.all_gather(numbers["loss"]))}

    def copied_state(self) -> dict[str, np.ndarray]:
        return {name: np.array(array) for name, array in self.trainer.state_dict().items()}

    def gathered_state(self) -> dict[str, np.ndarray]:
        """Return the state dict with the class matrix and its slots of all ranks."""
        state = self.copied_state()
        for name in (WEIGHT, *(slot_key(slot, WEIGHT) for slot in self.trainer.plan.optimizer.slots)):
            state[name] = self.gathered_rows(state[name])
        return state

    def gathered_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks."""
        shards = self.group.all_gather(rows.tolist())
        return np.concatenate([np.array(shard, rows.dtype).reshape(-1, WIDTH) for shard in shards])


def train(run: Run) -> dict[str, np.ndarray]:
    """Do ten updates."""
    numbers = [run.step(step) for step in range(STEPS)]
    arrays = {key: np.array([row[key] for row in numbers]) for key in ("loss", "grad_norm")}
    gradients = {f"gradient/{name}": array for name, array in run.trainer.gradients().items()}
    gradients[f"gradient/{WEIGHT}"] = run.gathered_rows(gradients[f"gradient/{WEIGHT}"])
    return {**arrays, **run.gathered_state(), **gradients}


def overflow(run: Run) -> dict[str, np.ndarray]:
    """Make a row of the last rank infinite for one update; return what every rank reports of it and of the next."""
    run.step(0)
    before = run.copied_state()
    if run.group.rank == run.group.size - 1:
        infinite = before[WEIGHT].copy()
        infinite[-1, 0] = np.inf
        run.trainer.load_state_dict({WEIGHT: infinite})
    skipped = run.step(1)
    report = run.trainer.nonfinite_report()
    run.trainer.load_state_dict({WEIGHT: before[WEIGHT]})
    after = run.trainer.state_dict()
    unchanged = all(np.array_equal(after[name], before[name]) for name in before if not name.startswith("scaler/"))
    repeated = run.step(1)
    rows = run.group.all_gather(
        [
            skipped["skipped"],
            skipped["consecutive_skips"],
            unchanged,
            repeated["skipped"],
            repeated["consecutive_skips"],
            bool(np.isfinite(repeated["loss"])),
            f"weights {WEIGHT}" in report,
        ]
    )
    return {"ranks": np.array(rows, np.float64)}


def sample(run: Run) -> dict[str, np.ndarray]:
    """Compare the rows that each of three updates with Partial FC changes on this rank with those it should."""
    first, last = sharding.row_range(run.classes, run.group.rank, run.group.size)
    count = sharding.num_active_rows(last - first, 0.25, GLOBAL_BATCH)
    correct = []
    for step in range(3):
        before = run.copied_state()
        run.step(step)
        after = run.trainer.state_dict()
        _, labels = random_batch(step, run.classes)
        positives = np.unique(labels[(labels >= first) & (labels < last)]) - first
        expected = sharding.sample_active_rows(positives, last - first, count, 3, run.group.rank, step)
        for name in (WEIGHT, MOMENTUM):
            changed = np.flatnonzero((np.array(after[name]) != before[name]).any(1))
            correct.append(bool(np.array_equal(changed, expected)) and set(positives) <= set(expected))
    return {"correct": np.array(run.group.all_gather(correct))}


def cases_of(framework: str) -> list[str]:
    """Return the names of the cases that run in a framework."""
    return [name for name in CASES if framework != "mindspore" or name not in NOT_IN_MINDSPORE]


def optimizers(framework: str) -> list[str]:
    return [name for name in cases_of(framework) if name in OPTIMIZERS]


def sampled_rows(run: Run, step: int) -> np.ndarray:
    """Return the rows of all ranks that an update with Partial FC uses."""
    _, labels = random_batch(step, run.classes)
    parts = []
    for rank in range(run.group.size):
        first, last = sharding.row_range(run.classes, rank, run.group.size)
        count = sharding.num_active_rows(last - first, 0.25, GLOBAL_BATCH)
        positives = np.unique(labels[(labels >= first) & (labels < last)]) - first
        parts.append(first + sharding.sample_active_rows(positives, last - first, count, 3, rank, step))
    return np.concatenate(parts)


def deviations(run: Run) -> dict[str, np.ndarray]:
    """Compare three updates of the sampled rows of all ranks with the formula; relative to the largest element."""
    spec: Any = run.trainer.plan.optimizer
    reference, found = Reference(spec), []
    for step in range(3):
        rows, before = sampled_rows(run, step), run.gathered_state()
        run.step(step)
        gradient, after = run.gathered_rows(run.trainer.gradients()[WEIGHT]), run.gathered_state()
        reference.applied = step + 1
        reference.slots = {(slot, WEIGHT): before[slot_key(slot, WEIGHT)][rows] for slot in spec.slots}
        weight = reference.update(WEIGHT, np.float64(before[WEIGHT][rows]), np.float64(gradient), LR, DECAY)
        expected = {WEIGHT: weight, **{slot_key(*key): array for key, array in reference.slots.items()}}
        found += [np.abs(after[key][rows] - array).max() / np.abs(array).max() for key, array in expected.items()]
    return {"deviations": np.array(found)}


def main(framework: str, folder: str) -> None:
    with connected(framework) as (world, group):
        cases = {name: CASES[name] for name in (cases_of(framework) if group.size <= 2 else [EVERYWHERE])}
        results = {}
        for name, case in cases.items():
            with mock.patch.object(margin, "CHUNK_ELEMENTS", case.chunk) if case.chunk else nullcontext():
                run = Run(framework, world, group, case)
                results[name] = train(run)
            if name == EVERYWHERE:
                results["overflow"] = overflow(run)
        if group.size <= 2:
            for name, loss_case in loss_ranks.cases(framework).items():
                results[name] = loss_ranks.train(framework, world, group, loss_case)
            for name in optimizers(framework):
                case = SAMPLED._replace(plan=CASES[name].plan[:1])
                results[f"{name}, sampled"] = deviations(Run(framework, world, group, case))
        run = Run(framework, world, group, SAMPLED)
        results["sampled"] = sample(run)
        results["after sampling"] = train(run)
        if group.rank == 0:
            for name, arrays in results.items():
                path = os.path.join(folder, f"{name}.npz")
                np.savez(path, **{key.replace("/", "|"): array for key, array in arrays.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
