"""Two ranks without several processes, one body over all frameworks (test_trainer.py).

If they hold the same samples, they compute what one rank computes that has each of them twice.
"""

import importlib
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer import loss_ranks, margin_cases
from tests.zoo.trainer.head_cases import chunks_of
from tests.zoo.trainer.margin_cases import CLASSES, HEAD
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_close, copied_state, frozen_norm, make, update
from zoo.optim.ema import Ema

RATES = 0.05, 0.02
CLIP_NORM = 0.3


@contextmanager
def first_of_two(backend, other):
    """Yield the adapter of the first of two ranks. other: array in a collective -> that of the other rank."""
    ranks = importlib.import_module(f"tests.zoo.trainer.{backend.FRAMEWORK}.ranks")
    with ranks.two_ranks(other) as world:
        yield SimpleNamespace(**{**vars(backend), "WORLD": world})


def check_equal_ranks(backend, accumulate=1, **options):
    """Do two updates, and compare numbers, weights, momentum and running statistics."""
    alone, expected = make(backend, accumulate=accumulate, **options), []
    for step, lr in enumerate(RATES):
        batches = [
            {name: np.concatenate([array, array]) for name, array in batch.items()}
            for batch in micro_batches(step, accumulate)
        ]
        expected.append((update(alone, *batches, lr=lr, step=step), copied_state(alone)))
    with first_of_two(backend, np.array) as first:
        rank = make(first, accumulate=accumulate, **options)
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
    with first_of_two(backend, lambda array: 3 * array) as first:
        rank = make(first, ema=Ema(0.5))
        update(rank, random_batch())
        before = copied_state(rank)
        rank.sync_batch_stats()
    mean = {name: array * (2 if ".running_" in name else 1) for name, array in before.items()}
    assert sum(".running_" in name for name in mean) == 4
    assert_close(rank.state_dict(), mean, 1e-7, 0)


def case_two_ranks_count_what_both_have_labelled(backend):
    """Weights of labelled pixels, and images, over all micro-batches."""
    for name in ("weighted", "dice"):
        case = loss_ranks.CASES[name]
        batches = margin_cases.split(loss_ranks.global_batch(case, 0), 0, 4, 8)
        whole = {key: np.concatenate([array, array]) for key, array in loss_ranks.global_batch(case, 0).items()}
        expected = update(loss_ranks.build(backend.FRAMEWORK, backend.WORLD, case), whole)
        with first_of_two(backend, np.array) as first:
            numbers = update(loss_ranks.build(backend.FRAMEWORK, first.WORLD, case), *batches)
        assert numbers["loss"] == pytest.approx(expected["loss"] / 2, rel=1e-5)
        assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)


def case_two_ranks_with_a_class_matrix(backend):
    """Each holds half of the rows. Rows and samples of both are equal, but each rank's samples are of its own classes.

    So what one rank computes for its own samples, the other one computes for the others. Once with whole logits, once
    with those of a few classes at a time, and lengths of all embeddings.
    """
    samples = 8

    def other(array):
        if array.dtype.kind == "i":
            return array + array.dtype.type(CLASSES)
        axes = [axis for axis, length in enumerate(array.shape) if length == 2 * samples]  # samples of both ranks
        return np.roll(array, samples, axes[0]) if axes else array.copy()

    for task, clip_sharded, classes in (({}, True, 2 * CLASSES), ({"loss": "adaface", "h": 2.0}, False, 4)):
        options = {"task": task, "clip_norm": CLIP_NORM, "clip_sharded": clip_sharded}
        alone = margin_cases.make(backend, classes=2 * CLASSES, **options)
        weights = {param.name: copied_state(alone)[param.name] for param in alone.params}
        weights[HEAD][CLASSES:] = weights[HEAD][:CLASSES]
        alone.load_state_dict(weights)
        batches = [margin_cases.random_batch(samples, seed=step) for step in range(len(RATES))]
        both = [{name: np.concatenate([array, other(array)]) for name, array in batch.items()} for batch in batches]
        expected = [update(alone, batch, lr=lr, step=step) for step, (batch, lr) in enumerate(zip(both, RATES))]
        with first_of_two(backend, other) as first, chunks_of(backend, 2 * samples * classes):
            rank = margin_cases.make(first, classes=2 * CLASSES, **options)
            rank.load_state_dict({**weights, HEAD: weights[HEAD][:CLASSES]})
            for step, (batch, lr) in enumerate(zip(batches, RATES)):
                numbers = update(rank, batch, lr=lr, step=step)
                assert numbers["loss"] == pytest.approx(expected[step]["loss"] / 2, rel=1e-5)
                assert numbers["grad_norm"] == pytest.approx(expected[step]["grad_norm"], rel=1e-5)
                assert numbers["grad_norm"] > 2 * CLIP_NORM
            state = {name: array[:CLASSES] if HEAD in name else array for name, array in alone.state_dict().items()}
            assert_close(rank.state_dict(), state, 1e-4, 1e-6)


def check_gradients_travel_as_fp16(backend):
    """Where the plan says so; for frameworks whose collectives `two_ranks` replaces, also those of gradients."""
    assert types_of_gradients(backend, fp16_allreduce=False) == {"float32"}
    assert types_of_gradients(backend, fp16_allreduce=True) == {"float16"}


def types_of_gradients(backend, **options):
    """Return the types of what the collectives of an update get, numbers apart."""
    names = set()

    def other(array):
        if array.size > 1:
            names.add(array.dtype.name)
        return array

    with first_of_two(backend, other) as first:
        update(make(first, **options), random_batch())
    return names
