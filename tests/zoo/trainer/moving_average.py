"""Checks of the moving average of weights and statistics, which state_cases.py runs in every framework.

Truth is the formula in numpy, applied to the framework's own weights after every update: the same bits.
"""

from unittest import mock

import numpy as np

from tests.zoo.trainer import margin_cases
from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_equal, copied_state, make, param_group, update
from zoo.optim.ema import Ema
from zoo.trainer import update as trainer_update
from zoo.trainer.plan import ParamGroup
from zoo.trainer.state import EMA_PREFIX, shapes, with_averages

SKIPPED = 2  # number of the update that is not finite
STEPS = (0, 1, 2, 3, 60)  # of updates; the warm-up ends after 26
SPECS = (Ema(0.75), Ema(0.6, warmup=False))


def started(trainer, tensors):
    """Load weights, and averages that start from them."""
    trainer.load_state_dict(with_averages(tensors, trainer.plan))
    return trainer


def averages(state):
    return {name.removeprefix(EMA_PREFIX): array for name, array in state.items() if name.startswith(EMA_PREFIX)}


def moved(average, weight, spec, applied):
    """Return the average after update `applied`, in the type of the weight, in which every operation rounds once."""
    number = weight.dtype.type
    rate = number(1 - spec.decay)
    if spec.warmup:
        rate = max(rate, number(9) / (number(10) + number(applied)))
    return average - rate * (average - weight)


def group(name):
    """Freeze the convolution."""
    return ParamGroup(0.0, 0.0) if name == "conv.weight" else param_group(name)


def skip_update(trainer, batch, step):
    """Do an update that is skipped, with statistics that are not finite."""
    statistics = {name: np.array(trainer.state_dict()[name]) for name in ("bn.running_mean", "bn.running_var")}
    infinite = {name: np.full_like(array, np.inf) for name, array in statistics.items()}
    trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32), **infinite})
    assert update(trainer, batch, step=step)["consecutive_skips"] == 1
    trainer.load_state_dict({"scaler/scale": np.array(1, np.float32), **statistics})


def compare(trainer):
    """Compare the averages after every update."""
    expected = averages(copied_state(trainer))
    for step in STEPS:
        batch = random_batch(seed=step)
        if step == SKIPPED:
            skip_update(trainer, batch, step)
            assert_equal(averages(trainer.state_dict()), expected)
            continue
        assert update(trainer, batch, step=step)["consecutive_skips"] == 0
        state, applied = copied_state(trainer), step + 1 - (step > SKIPPED)
        expected = {name: moved(average, state[name], trainer.plan.ema, applied) for name, average in expected.items()}
        assert_equal(averages(state), expected)
        assert {name for name in expected if np.array_equal(expected[name], state[name])} == {"conv.weight"}


def check_the_average_of_every_update(backend):
    """With one that is skipped, a frozen parameter, and the running statistics."""
    modes = (*backend.FP32_MODES[:2], backend.FP64_MODES[0])
    for mode, spec in [(modes[0], SPECS[1]), *((mode, SPECS[0]) for mode in modes)]:
        compare(started(make(backend, mode, group=group, ema=spec), tiny.initial_state()))


def check_the_average_changes_nothing_else(backend):
    """The updates, and the predictions by the weights; those by the average are the ones of a model with its values."""
    plain, trainer = (
        make(backend, clip_norm=0.5),
        started(make(backend, clip_norm=0.5, ema=SPECS[0]), tiny.initial_state()),
    )
    for seed in range(3):
        for each in (plain, trainer):
            update(each, random_batch(seed=seed), random_batch(seed=seed + 7), step=seed)
    state = trainer.state_dict()
    assert_equal({name: array for name, array in state.items() if not name.startswith(EMA_PREFIX)}, plain.state_dict())
    images = random_batch(seed=9)["image"]
    raw, averaged = (trainer.predict(trainer.to_device({"image": images}), averaged=each) for each in (False, True))
    np.testing.assert_array_equal(raw, plain.predict(plain.to_device({"image": images})))
    plain.load_state_dict(averages(state))
    np.testing.assert_array_equal(averaged, plain.predict(plain.to_device({"image": images})))
    assert not np.array_equal(raw, averaged)


def check_a_loaded_average_continues_bit_for_bit(backend):
    """Its keys and shapes are those of the description; the warm-up goes on where it was."""
    first = started(make(backend, ema=SPECS[0]), tiny.initial_state())
    update(first, random_batch())
    second, state = make(backend, ema=SPECS[0]), copied_state(first)
    assert {name: array.shape for name, array in state.items()} == shapes(first.params, first.plan)
    second.load_state_dict(state)
    assert_equal(second.state_dict(), state)
    for trainer in (first, second):
        update(trainer, random_batch(seed=1), step=1)
    assert_equal(second.state_dict(), first.state_dict())


def check_the_average_of_a_class_matrix(backend):
    """Of all its rows, also where an update uses some; in blocks of seven, which do not divide them."""
    for rate in (1.0, 0.1):
        classes = margin_cases.MANY_CLASSES
        trainer = margin_cases.make(backend, classes=classes, task={"sample_rate": rate}, ema=SPECS[0])
        state = copied_state(trainer)
        expected = averages(copied_state(started(trainer, {param.name: state[param.name] for param in trainer.params})))
        for step in range(2):
            with mock.patch.object(trainer_update, "BLOCK_SIZE", 7 * margin_cases.WIDTH):
                margin_cases.update(trainer, margin_cases.random_batch(seed=step, classes=classes), step=step)
            state = copied_state(trainer)
            expected = {name: moved(value, state[name], SPECS[0], step + 1) for name, value in expected.items()}
            assert_equal(averages(state), expected)
            assert not np.array_equal(expected[margin_cases.HEAD], state[margin_cases.HEAD])
