"""The cases of train.checkpoint_activations, one body over all frameworks (test_trainer.py).

An update must be the same with and without it. An adapter has `submodules(model)`, the names of a model's modules;
CHECKPOINTED_MODES, those of 32 bits that have it; RECOMPUTED_RTOL, the largest relative difference of weights
(0: none); and `saved_bytes(trainer, batch)`, what a forward pass keeps for the backward pass, or None where the
framework does not tell.
"""

from itertools import product

import numpy as np
import pytest

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_close, assert_equal, make, make_tsm, random_clips, update
from zoo.models import list_models, load_model_class, load_spec

SMALL_ARCHS = {
    "arcface": {"depth": 18, "width": 8, "embedding": 8, "size": 32},
    "deeplabv3plus": {},
    "resnet": {"depth": 18, "width": 8},
    "tsm": {"depth": 18, "width": 8, "segments": 2},
    "tsm_mobilenet_v2": {"width": 8, "segments": 2},
}
BLOCKS = tuple(f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1))


def assert_equal_updates(checkpointed, plain, batches, rtol):
    """Do updates of micro-batches, and compare their numbers, weights, momentum and running statistics."""
    for step, micro_batches in enumerate(batches):
        numbers, expected = (update(trainer, *micro_batches, step=step) for trainer in (checkpointed, plain))
        assert numbers == pytest.approx(expected, rel=rtol, abs=0)
    state, expected = checkpointed.state_dict(), plain.state_dict()
    if rtol == 0:
        assert_equal(state, expected)
    else:
        assert_close(state, expected, rtol, 1e-6)


def case_checkpointed_updates_are_the_same(backend):
    """And the predictions; in every mode that has it, with micro-batches, dropout, and all normalizations."""
    options = {"dropout": 0.5, "smoothing": 0.1, "clip_norm": 1.0}
    for mode, (partial_bn, sync_bn, accumulate) in product(
        backend.CHECKPOINTED_MODES, ((False, False, 1), (False, True, 2), (True, False, 1))
    ):
        if mode.compile and (accumulate > 1 or partial_bn):
            continue  # compiling takes seconds
        plain, checkpointed = (
            make_tsm(
                backend,
                mode,
                partial_bn=partial_bn,
                sync_bn=sync_bn,
                accumulate=accumulate,
                checkpointed_modules=names,
                **options,
            )[0]
            for names in ((), BLOCKS)
        )
        before = plain.state_dict()["layer1.0.bn1.running_mean"].copy()
        batches = [[random_clips(seed=10 * step + part) for part in range(accumulate)] for step in range(2)]
        assert_equal_updates(checkpointed, plain, batches, backend.RECOMPUTED_RTOL)
        moved = not np.array_equal(plain.state_dict()["layer1.0.bn1.running_mean"], before)
        assert moved != partial_bn  # otherwise a second update of the statistics would not show
        clips = {"video": random_clips()["video"]}
        predictions, expected = (trainer.predict(trainer.to_device(clips)) for trainer in (checkpointed, plain))
        assert_close({"": predictions}, {"": expected}, backend.RECOMPUTED_RTOL, backend.RECOMPUTED_RTOL)


def case_checkpointed_updates_in_16_bits_are_the_same(backend):
    """The second computation is in the types of the first."""
    for mode in backend.SIXTEEN_BIT_MODES[:2]:
        plain, checkpointed = (make(backend, mode, checkpointed_modules=names) for names in ((), ("conv", "bn")))
        batches = [[random_batch(seed=step)] for step in range(2)]
        assert_equal_updates(checkpointed, plain, batches, backend.RECOMPUTED_RTOL)


def case_checkpointed_modules_keep_less(backend):
    """A block of ResNet-18 keeps its input instead of six maps of the size of its output."""
    plain, some, checkpointed = (
        backend.saved_bytes(
            make_tsm(backend, backend.CHECKPOINTED_MODES[0], checkpointed_modules=names)[0], random_clips()
        )
        for names in ((), BLOCKS[:4], BLOCKS)
    )
    if plain is not None:
        assert checkpointed < some < plain and checkpointed < 0.7 * plain, (plain, some, checkpointed)


def case_every_checkpointed_module_is_in_the_model(backend):
    """And none of them contains another."""
    names = [name for name in list_models() if load_spec(name).checkpointed_modules(load_spec(name).Arch())]
    assert sorted(SMALL_ARCHS) == names
    for name, options in SMALL_ARCHS.items():
        spec = load_spec(name)
        arch = spec.Arch(num_classes=3, **options)
        modules = spec.checkpointed_modules(arch)
        assert len(modules) >= 8 and len(set(modules)) == len(modules)
        assert not any(inner.startswith(f"{outer}.") for inner in modules for outer in modules)
        present = backend.submodules(load_model_class(name, backend.FRAMEWORK)(arch))
        assert set(modules) <= set(present), name
