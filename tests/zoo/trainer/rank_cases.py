"""Two ranks without several processes, one body over all frameworks (test_trainer.py).

If they hold the same samples, they compute what one rank computes that has each of them twice.
"""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_close, copied_state, frozen_norm, make, update
from zoo.optim.ema import Ema

RATES = 0.05, 0.02


def two_ranks(backend, *factor):
    return importlib.import_module(f"tests.zoo.trainer.{backend.FRAMEWORK}.ranks").two_ranks(*factor)


def check_equal_ranks(backend, accumulate=1, **options):
    """Do two updates, and compare numbers, weights, momentum and running statistics."""
    alone, expected = make(backend, accumulate=accumulate, **options), []
    for step, lr in enumerate(RATES):
        batches = [
            {name: np.concatenate([array, array]) for name, array in batch.items()}
            for batch in micro_batches(step, accumulate)
        ]
        expected.append((update(alone, *batches, lr=lr, step=step), copied_state(alone)))
    with two_ranks(backend) as world:
        rank = make(SimpleNamespace(**{**vars(backend), "WORLD": world}), accumulate=accumulate, **options)
        for step, (lr, (numbers_alone, state)) in enumerate(zip(RATES, expected)):
            numbers = update(rank, *micro_batches(step, accumulate), lr=lr, step=step)
            assert numbers["loss"] == pytest.approx(numbers_alone["loss"] / 2, rel=1e-5)  # a rank's share
            assert numbers["grad_norm"] == pytest.approx(numbers_alone["grad_norm"], rel=1e-5)
            assert_close(rank.state_dict(), state, 1e-4, 1e-6)
        if hasattr(rank, "ddp"):  # else the sum over micro-batches is all-reduced
            assert rank.ddp.reduced == [*[False] * (accumulate - 1), True] * len(RATES)


def micro_batches(step, count):
    return [random_batch(seed=10 * step + part) for part in range(count)]


def case_two_ranks_with_synchronized_normalization(backend):
    check_equal_ranks(backend, sync_bn=True, clip_norm=0.2)


def case_two_ranks_with_a_frozen_normalization_and_micro_batches(backend):
    check_equal_ranks(backend, accumulate=2, group=frozen_norm, clip_norm=0.2)


def case_statistics_of_two_ranks_are_averaged(backend):
    """Without synchronized normalization each rank has its own; so has their moving average. Nothing else changes."""
    with two_ranks(backend, 3.0) as world:
        rank = make(SimpleNamespace(**{**vars(backend), "WORLD": world}), ema=Ema(0.5))
        update(rank, random_batch())
        before = copied_state(rank)
        rank.sync_batch_stats()
    mean = {name: array * (2 if ".running_" in name else 1) for name, array in before.items()}
    assert sum(".running_" in name for name in mean) == 4
    assert_close(rank.state_dict(), mean, 1e-7, 0)
