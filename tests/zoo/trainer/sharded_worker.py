"""What the ranks of one framework compute for tests/zoo/trainer/test_sharded.py: `python -m tests.zoo.trainer.sharded_worker FRAMEWORK FOLDER`.

A linear net under the margin objective, whose class matrix is split over the ranks; rank 0 leaves the arrays.
"""

import importlib
import os
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from data.batch import LABEL, Field
from zoo.distributed import addresses, environment, launchers, rendezvous
from zoo.models import initializers
from zoo.tasks import face
from zoo.trainer import load_backend, sharding
from zoo.trainer.protocol import Mode, Plan

CLASSES, WIDTH, INPUTS, BATCH, STEPS, RATE, DECAY = 11, 6, 5, 24, 10, 0.3, 1e-2
WEIGHT, MOMENTUM = face.HEAD_WEIGHT, f"momentum/{face.HEAD_WEIGHT}"


class Case(NamedTuple):
    task: dict = {}
    plan: dict = {}
    classes: int = CLASSES


CASES = {
    "plain": Case(),
    "filter": Case({"interclass": 0.3}, {"accumulate": 2}),
    "clipped": Case({"m2": 0.0, "m3": 0.35}, {"clip_norm": 1.0}),
    "clipped apart": Case({"gradient": "straight"}, {"clip_norm": 0.2, "clip_sharded": False}),
}
SAMPLED = Case({"sample_rate": 0.25}, {}, classes=200)  # every rank draws by itself: nothing to compare over ranks


def net_of(framework: str) -> type:
    """Model(arch) with the one layer fc."""
    if framework == "torch":
        torch = importlib.import_module("torch")

        class Model(torch.nn.Module):
            def __init__(self, arch):
                super().__init__()
                self.fc = torch.nn.Linear(INPUTS, WIDTH)

            def forward(self, x):
                return self.fc(x)
    elif framework == "paddle":
        paddle = importlib.import_module("paddle")

        class Model(paddle.nn.Layer):
            def __init__(self, arch):
                super().__init__()
                self.fc = paddle.nn.Linear(INPUTS, WIDTH)

            def forward(self, x):
                return self.fc(x)
    else:
        mindspore = importlib.import_module("mindspore")

        class Model(mindspore.nn.Cell):
            def __init__(self, arch):
                super().__init__()
                self.fc = mindspore.nn.Dense(INPUTS, WIDTH)

            def construct(self, x):
                return self.fc(x)

    return Model


def batch_of(number: int, classes: int):
    rng = np.random.default_rng((5, number))
    return rng.standard_normal((BATCH, INPUTS), np.float32), rng.integers(0, classes, BATCH)


class Run:
    """A trainer and what this rank feeds it."""

    def __init__(self, backend, framework, world, joined, case: Case):
        settings = face.Settings(**{"scale": 8.0, **case.task})
        plan = Plan(
            (Field("x", (INPUTS,), "float32"), LABEL),
            (),
            lambda _: (1.0, DECAY),
            world.resolve_mode(Mode("fp32")),
            seed=3,
            **case.plan,
        )
        arch = SimpleNamespace(num_classes=case.classes, embedding=WIDTH)
        self.group, self.classes, self.accumulate = joined, case.classes, plan.accumulate
        self.trainer = backend.Trainer(net_of(framework), arch, face.objective(settings), plan, world)
        self.trainer.load_state_dict(
            {
                param.name: initializers.initialize(initializers.normal(0.5), 1, param.name, param.shape, param.rows)
                for param in self.trainer.params
            }
        )

    def step(self, number: int) -> dict[str, float]:
        """One update; the numbers, with the loss of all ranks."""
        images, labels = batch_of(number, self.classes)
        each = BATCH // self.group.size // self.accumulate
        parts = []
        for part in range(self.accumulate):
            rows = slice((part * self.group.size + self.group.rank) * each, None)
            parts.append(
                self.trainer.to_device(
                    {"x": images[rows][:each], "label": labels[rows][:each], "valid": np.ones(each, np.uint8)}
                )
            )
        found = self.trainer.read(self.trainer.step(parts, RATE, number))
        return {**found, "loss": sum(self.group.all_gather(found["loss"]))}

    def whole(self) -> dict[str, np.ndarray]:
        """What all ranks dump, put together."""
        mine = {name: np.array(array) for name, array in self.trainer.state_dict().items()}
        for name in (WEIGHT, MOMENTUM):
            mine[name] = np.concatenate(
                [np.array(rows, np.float32).reshape(-1, WIDTH) for rows in self.group.all_gather(mine[name].tolist())]
            )
        return mine


def follow(run: Run) -> dict[str, np.ndarray]:
    """Ten updates."""
    numbers = [run.step(number) for number in range(STEPS)]
    return {
        "losses": np.array([each["loss"] for each in numbers]),
        "norms": np.array([each["grad_norm"] for each in numbers]),
        **run.whole(),
    }


def upset(run: Run) -> dict[str, np.ndarray]:
    """A row of the last rank becomes infinite for one update. What every rank says of it, and of the next."""
    run.step(0)
    before = {name: np.array(array) for name, array in run.trainer.state_dict().items()}
    if run.group.rank == run.group.size - 1:
        broken = before[WEIGHT].copy()
        broken[-1, 0] = np.inf
        run.trainer.load_state_dict({WEIGHT: broken})
    skipped = run.step(1)
    told = run.trainer.nonfinite_report()
    run.trainer.load_state_dict({WEIGHT: before[WEIGHT]})
    after = run.trainer.state_dict()
    unchanged = all(np.array_equal(after[name], before[name]) for name in before if not name.startswith("scaler/"))
    again = run.step(1)
    rows = run.group.all_gather(
        [
            skipped["skipped"],
            skipped["consecutive_skips"],
            unchanged,
            again["skipped"],
            again["consecutive_skips"],
            bool(np.isfinite(again["loss"])),
            "statistic head.weight" in told,
        ]
    )
    return {"ranks": np.array(rows, np.float64)}


def sampled(run: Run) -> dict[str, np.ndarray]:
    """Partial FC: which rows each of three updates changed on this rank, and which it should have; twice the same."""
    held = sharding.row_range(run.classes, run.group.rank, run.group.size)
    count = sharding.num_active_rows(held[1] - held[0], 0.25, BATCH)
    found = []
    for number in range(3):
        before = {name: np.array(run.trainer.state_dict()[name]) for name in (WEIGHT, MOMENTUM)}
        run.step(number)
        after = run.trainer.state_dict()
        _, labels = batch_of(number, run.classes)
        positives = np.unique(labels[(labels >= held[0]) & (labels < held[1])]) - held[0]
        wanted = sharding.sample_active_rows(positives, held[1] - held[0], count, 3, run.group.rank, number)
        for name in before:
            changed = np.flatnonzero((np.array(after[name]) != before[name]).any(1))
            found.append(bool(np.array_equal(changed, wanted)) and set(positives) <= set(wanted))
    return {"right": np.array(run.group.all_gather(found))}


def main(framework: str, folder: str) -> None:
    joined = rendezvous.connect(launchers.detect(os.environ), 100)
    environment.prepare(joined)
    port = joined.all_gather(addresses.free_port(joined.launch.address) if joined.size > 1 and joined.rank == 0 else 0)[
        0
    ]
    backend = load_backend(framework)
    world = backend.start(joined.launch, "cpu", port)
    cases = CASES if joined.size <= 2 else {"plain": CASES["plain"]}
    results = {name: follow(Run(backend, framework, world, joined, case)) for name, case in cases.items()}
    results["upset"] = upset(Run(backend, framework, world, joined, CASES["clipped"]))
    run = Run(backend, framework, world, joined, SAMPLED)
    results["sampled"] = sampled(run)
    results["drawn"] = follow(run)
    if joined.rank == 0:
        for name, arrays in results.items():
            np.savez(
                os.path.join(folder, f"{name}.npz"), **{key.replace("/", "|"): each for key, each in arrays.items()}
            )
    world.close()
    joined.close()
    world.exit_process(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
