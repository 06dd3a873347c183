"""Compute updates of the model Tiny on several ranks, eager and compiled, for test_compiled.py.

Rank 0 writes the arrays. By a launcher: python -m tests.zoo.trainer.torch.compiled_worker FOLDER
"""

import os
import sys
from types import SimpleNamespace

import numpy as np

from tests.helpers.frameworks import adapter
from tests.helpers.processes import connected
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make, update
from zoo.trainer.plan import Mode

CASES = {
    "micro-batches": {"accumulate": 2, "clip_norm": 0.2, "checkpointed_modules": ("conv", "bn")},
    "synchronized": {"sync_bn": True, "checkpointed_modules": ("bn",)},
}


def train(backend, group, compiled: bool, options) -> dict[str, np.ndarray]:
    """Do three updates of a rank; return the numbers of all, and the state after the last."""
    trainer = make(backend, Mode("fp32", None, True, compiled), **options)
    rows = []
    for step in range(3):
        batches = [random_batch(seed=10 * step + 2 * i + group.rank) for i in range(trainer.plan.accumulate)]
        rows.append(update(trainer, *batches, step=step))
    numbers = {key: np.array([row[key] for row in rows]) for key in ("loss", "grad_norm", "skipped")}
    trainer.sync_batch_stats()
    return {**numbers, **trainer.state_dict()}


def main(folder: str) -> None:
    with connected("torch") as (world, group):
        backend = SimpleNamespace(**{**vars(adapter("torch")), "WORLD": world})
        for name, options in CASES.items():
            arrays = {
                f"{mode} {key.replace('/', '|')}": array
                for mode in ("eager", "compiled")
                for key, array in train(backend, group, mode == "compiled", options).items()
            }
            if group.rank == 0:
                np.savez(os.path.join(folder, f"{name}.npz"), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
