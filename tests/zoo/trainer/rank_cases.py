"""Updates of several ranks without several processes, one body over all frameworks (test_trainer.py).

Two ranks that hold the same samples compute what one rank computes that has each of them twice.
"""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_close, copied_state, frozen_norm, make, update

RATES = 0.05, 0.02


def two_equal_ranks(backend):
    return importlib.import_module(f"tests.zoo.trainer.{backend.FRAMEWORK}.ranks").two_equal_ranks()


def check_equal_ranks(backend, accumulate=1, **options):
    """Do two updates, and compare numbers, weights, momentum and running statistics."""
    alone, expected = make(backend, accumulate=accumulate, **options), []
    for step, lr in enumerate(RATES):
        batches = [
            {name: np.concatenate([array, array]) for name, array in batch.items()}
            for batch in micro_batches(step, accumulate)
        ]
        expected.append((update(alone, *batches, lr=lr, step=step), copied_state(alone)))
    with two_equal_ranks(backend) as world:
        rank = make(SimpleNamespace(**{**vars(backend), "WORLD": world}), accumulate=accumulate, **options)
        for step, (lr, (numbers_alone, state)) in enumerate(zip(RATES, expected)):
            numbers = update(rank, *micro_batches(step, accumulate), lr=lr, step=step)
            assert numbers["loss"] == pytest.approx(numbers_alone["loss"] / 2, rel=1e-5)  # a rank's share
            assert numbers["grad_norm"] == pytest.approx(numbers_alone["grad_norm"], rel=1e-5)
            assert_close(rank.state_dict(), state, 1e-4, 1e-6)


def micro_batches(step, count):
    return [random_batch(seed=10 * step + part) for part in range(count)]


def case_two_ranks_with_synchronized_normalization(backend):
    check_equal_ranks(backend, sync_bn=True, clip_norm=0.2)


def case_two_ranks_with_a_frozen_normalization_and_micro_batches(backend):
    check_equal_ranks(backend, accumulate=2, group=frozen_norm, clip_norm=0.2)


def case_statistics_of_two_ranks_are_averaged(backend):
    """Without synchronized normalization each rank has its own; equal ones stay as they are."""
    with two_equal_ranks(backend) as world:
        rank = make(SimpleNamespace(**{**vars(backend), "WORLD": world}))
        update(rank, random_batch())
        before = copied_state(rank)
        rank.sync_batch_stats()
    assert_close(rank.state_dict(), before, 1e-7, 0)
