"""Updates with and without sharded optimizer state, for test_sharded_optimizer.py; by a launcher with two processes.

python -m tests.zoo.trainer.torch.sharded_optimizer_worker OPTIMIZER...
"""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np

from tests.helpers.processes import connected
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.torch import tiny
from tests.zoo.trainer.trainer_setup import assert_close, assert_equal, copied_state, frozen_norm, make, update
from zoo import optim
from zoo.trainer.plan import Mode
from zoo.trainer.torch import Trainer

MODES = Mode("fp32", None, True, False), Mode("fp64", None, False, False, True)


def train(trainer, rank, steps):
    """Do updates with other samples on each rank; the third is skipped."""
    for step in steps:
        scale = trainer.scaler.scale
        trainer.scaler.scale = scale * np.inf if step == 2 else scale
        numbers = update(trainer, random_batch(seed=10 * step + rank), lr=0.05, step=step)
        trainer.scaler.scale = scale
        assert numbers["consecutive_skips"] == (step == 2)


def check(world, mode, name):
    """Compare two runs of six updates, each with a resume in the middle: into the same kind and into the other."""
    backend = SimpleNamespace(Tiny=tiny.Tiny, Trainer=Trainer, FP32_MODES=MODES, WORLD=world)
    settings = {"optimizer": optim.load_settings(name)(), "clip_norm": 0.2}
    whole, sharded, whole_again, sharded_again = (
        make(backend, mode, shard_optimizer=shard, **settings) for shard in (False, True, False, True)
    )
    for trainer in (whole, sharded):
        train(trainer, world.rank, range(4))
    middle = copied_state(whole)
    assert_equal(copied_state(sharded), middle)
    assert_close(sharded.gradients(), whole.gradients(), 1e-6, 1e-8)  # divided and multiplied again, or not
    held, total = (sum(slot.numel() for slot in each.optimizer.named_slots().values()) for each in (sharded, whole))
    whole_again.load_state_dict(copied_state(sharded))
    sharded_again.load_state_dict(middle)
    trainers = whole, sharded, whole_again, sharded_again
    for trainer in trainers:
        train(trainer, world.rank, range(4, 6))
    expected = copied_state(whole)
    assert not np.array_equal(expected["fc.weight"], middle["fc.weight"])
    for trainer in trainers[1:]:
        assert_equal(copied_state(trainer), expected)
    return held, total


def check_other_ranks(world, mode, name):
    """Resume with one rank what two have begun, and the other way; the normalization is frozen.

    Each rank computes what one rank alone does, from the samples of both.
    """
    backend = SimpleNamespace(Tiny=tiny.Tiny, Trainer=Trainer, FP32_MODES=MODES, WORLD=world)
    settings = {"optimizer": optim.load_settings(name)(), "group": frozen_norm, "shard_optimizer": True}
    pair, pair_again = (make(backend, mode, **settings) for _ in range(2))
    backend.WORLD = dataclasses.replace(world, rank=0, size=1)
    alone = make(backend, mode, **settings)
    train(pair, world.rank, range(2))
    alone.load_state_dict(copied_state(pair))
    assert_equal(copied_state(alone), copied_state(pair))
    for step in (3, 4):
        if step == 4:
            pair_again.load_state_dict(copied_state(alone))
            pair = pair_again
        halves = [random_batch(seed=10 * step + rank) for rank in range(2)]
        update(alone, {key: np.concatenate([half[key] for half in halves]) for key in halves[0]}, lr=0.05, step=step)
        train(pair, world.rank, [step])
        assert_close(copied_state(alone), copied_state(pair), 1e-4, 1e-6)


def main(names):
    with connected("torch") as (world, group):
        for name in names:
            for mode in MODES:
                held, total = check(world, mode, name)
                check_other_ranks(world, mode, name)
                slots = len(optim.load_settings(name).slots)
                assert total == 141 * slots and group.all_gather(held) == [
                    108 * slots,
                    33 * slots,
                ]  # conv.weight, the others
        if group.rank == 0:
            print("equal")


if __name__ == "__main__":
    main(sys.argv[1:])
