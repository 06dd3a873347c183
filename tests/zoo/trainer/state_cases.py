"""State, loss scale, precision and devices of the trainer interface, one body over all frameworks (test_trainer.py)."""

import re

import numpy as np
import pytest

from tests.zoo.trainer import moving_average
from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import (
    assert_equal,
    copied_state,
    make,
    make_tsm,
    random_clips,
    update,
)
from zoo.data.errors import UserError
from zoo.models.tsm import spec as tsm_spec
from zoo.trainer.state import shapes as state_shapes
from zoo.trainer.world import Launch, UnsupportedPrecision

SCALER_KEYS = {"scaler/scale", "scaler/good", "scaler/skipped"}
SCALER_STATE = ("scale", "good", "skipped")


def case_the_loss_scale_halves_and_doubles(backend):
    """It halves after a skipped update, and doubles after 2000 in a row that were not: the count begins anew."""
    mode = next((mode for mode in backend.SIXTEEN_BIT_MODES if mode.compute == "fp16"), backend.FP32_MODES[0])
    trainer = make(backend, mode, loss_scale=8.0)
    backend.make_loss_scale_dynamic(trainer, 8.0)
    head = np.array(trainer.state_dict()["fc.weight"])
    trainer.load_state_dict({"fc.weight": np.full_like(head, np.nan), "scaler/good": np.array(1998, np.float32)})
    assert update(trainer, random_batch())["scale"] == 8.0
    assert [float(trainer.state_dict()[f"scaler/{name}"]) for name in SCALER_STATE] == [4.0, 0, 1]
    assert trainer.nonfinite_report().startswith("not finite: weights fc.weight")
    trainer.load_state_dict({"fc.weight": head, "scaler/good": np.array(1998, np.float32)})
    for scale, *after in ((4.0, 4.0, 1999, 1), (4.0, 8.0, 0, 1), (8.0, 8.0, 1, 1)):
        numbers, state = update(trainer, random_batch(), lr=0.001), trainer.state_dict()
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (scale, 1, 0)
        assert [float(state[f"scaler/{name}"]) for name in SCALER_STATE] == after
    assert trainer.nonfinite_report() == "all finite"


def case_a_static_loss_scale_never_changes(backend):
    """Neither after a skipped update, which is counted, nor after 2000 in a row that were not."""
    mode = next((mode for mode in backend.SIXTEEN_BIT_MODES if mode.compute == "fp16"), backend.FP32_MODES[0])
    trainer = make(backend, mode, loss_scale=8.0, dynamic_loss_scale=False)
    backend.make_loss_scale_static(trainer, 8.0)
    head = np.array(trainer.state_dict()["fc.weight"])
    trainer.load_state_dict({"fc.weight": np.full_like(head, np.nan)})
    for skipped in (1, 2):
        numbers = update(trainer, random_batch())
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (8.0, skipped, skipped)
    trainer.load_state_dict({"fc.weight": head, "scaler/good": np.array(1999, np.float32)})
    for _ in range(2):
        numbers = update(trainer, random_batch(), lr=0.001)
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (8.0, 2, 0)
    assert trainer.state_dict()["scaler/scale"] == 8.0


def case_a_static_loss_scale_gives_the_update_of_a_dynamic_one(backend):
    """As long as the dynamic one does not change."""
    for mode in [mode for mode in backend.SIXTEEN_BIT_MODES if mode.compute == "fp16"][:1]:
        states = []
        for dynamic in (True, False):
            trainer = make(backend, mode, loss_scale=64.0, dynamic_loss_scale=dynamic)
            assert update(trainer, random_batch(), lr=0.1)["scale"] == 64.0
            states.append({key: value for key, value in copied_state(trainer).items() if key not in SCALER_KEYS})
        assert_equal(*states)


def case_the_loss_scale_is_divided_out_of_the_gradient(backend):
    for mode in (*backend.FP32_MODES, *(mode for mode in backend.SIXTEEN_BIT_MODES if mode.compute == "bf16")):
        plain, scaled = make(backend, mode, clip_norm=0.2), make(backend, mode, clip_norm=0.2)
        scaled.load_state_dict({"scaler/scale": np.array(1024, np.float32)})  # a power of two: exact
        expected, numbers = update(plain, random_batch()), update(scaled, random_batch())
        assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-6) and numbers["scale"] == 1024
        state = scaled.state_dict()
        for name, value in plain.state_dict().items():
            if not name.startswith("scaler/"):
                np.testing.assert_allclose(state[name], value, rtol=1e-6, atol=1e-8, err_msg=name)


def case_fp64_and_fp32_load_each_others_state(backend):
    wide, narrow = make(backend, backend.FP64_MODES[0]), make(backend)
    for trainer in (wide, narrow):
        update(trainer, random_batch())
    state = copied_state(wide)
    assert {name: array.dtype for name, array in state.items() if name not in SCALER_KEYS} == dict.fromkeys(
        state.keys() - SCALER_KEYS, np.float64
    )
    again = make(backend, backend.FP64_MODES[0])
    again.load_state_dict(state)
    assert_equal(again.state_dict(), state)
    for trainer in (wide, again):
        update(trainer, random_batch(seed=1))
    assert_equal(again.state_dict(), wide.state_dict())
    narrow.load_state_dict(state)
    rounded = {name: array.astype(np.float32) for name, array in state.items()}
    assert_equal(narrow.state_dict(), rounded)
    wide.load_state_dict(rounded)
    assert_equal(wide.state_dict(), {name: rounded[name].astype(state[name].dtype) for name in state})


def case_sixteen_bits_stay_out_of_state_and_evaluation(backend):
    plain, batch = make(backend), random_batch(64)
    exact, losses = update(plain, batch, lr=0.0)["loss"], set()
    for mode in backend.SIXTEEN_BIT_MODES:
        trainer = make(backend, mode, loss_scale=8.0)
        numbers = update(trainer, batch, lr=0.0)
        losses.add(numbers["loss"])
        assert 1e-7 < abs(numbers["loss"] - exact) < 1e-2 and numbers["skipped"] == 0
        assert numbers["scale"] == (8 if mode.compute == "fp16" else 1)
        assert all(value.dtype == np.float32 for value in trainer.state_dict().values())
        trainer.load_state_dict(plain.state_dict())
        predictions, expected = (each.predict(each.to_device({"image": batch["image"]})) for each in (trainer, plain))
        np.testing.assert_allclose(predictions, expected, rtol=1e-6, atol=1e-6)
    assert len(losses) == len(backend.SIXTEEN_BIT_MODES)  # every mode rounds in places of its own


def case_every_module_of_fp32_computes_in_fp32(backend):
    """16 bits change nothing where all layers that they would reach are named."""
    batch = random_batch(64)
    exact = update(make(backend), batch, lr=0.0)["loss"]
    for mode in backend.SIXTEEN_BIT_MODES[:1]:
        for names in (("conv", "fc"), ("fc",)):
            trainer = make(backend, mode, loss_scale=8.0, fp32_modules=names)
            difference = abs(update(trainer, batch, lr=0.0)["loss"] - exact)
            assert difference < 1e-6 if len(names) == 2 else 1e-6 < difference < 1e-2, (names, difference)


def case_the_nonfinite_report_names_weights_statistics_and_gradients(backend):
    for mode in backend.FP32_MODES:
        trainer = make(backend, mode)
        update(trainer, random_batch())
        assert trainer.nonfinite_report() == "all finite"
        before = copied_state(trainer)
        broken = {name: np.full_like(before[name], np.nan) for name in ("fc.weight", "bn.running_mean")}
        trainer.load_state_dict(broken)
        assert trainer.nonfinite_report() == "not finite: weights fc.weight; running statistics bn.running_mean"
        trainer.load_state_dict({**before, "scaler/scale": np.array(np.inf, np.float32)})
        assert update(trainer, random_batch())["skipped"] == 1
        assert trainer.nonfinite_report() == "not finite: gradients of conv.weight, bn.weight, bn.bias and 2 more"


def case_a_loaded_state_continues_bit_for_bit(backend):
    for mode in backend.FP32_MODES:
        first, second = make(backend, mode, clip_norm=1.0), make(backend, mode, clip_norm=1.0)
        for seed in (0, 1):
            update(first, random_batch(seed=seed))
        update(second, random_batch(seed=7))  # loading in the middle of a run forgets what was there
        second.load_state_dict(first.state_dict())
        for trainer in (first, second):
            for seed in (2, 3):
                update(trainer, random_batch(seed=seed), lr=0.02)
        assert_equal(second.state_dict(), first.state_dict())


def case_the_state_dict_is_the_same_in_every_framework(backend):
    """Canonical names and shapes of weights, statistics, momentum and loss scale; float32 copies."""
    trainer, arch = make_tsm(backend, partial_bn=True)
    shapes = tsm_spec.shapes(arch)
    trained = [name for name in shapes if ".running_" not in name and tsm_spec.lr_and_decay_scale(arch, name)[0]]
    expected = {
        **shapes,
        **{f"optimizer/momentum/{name}": shapes[name] for name in trained},
        **{f"scaler/{name}": () for name in SCALER_STATE},
    }
    state, rng = trainer.state_dict(), np.random.default_rng(3)
    assert {name: value.shape for name, value in state.items()} == expected
    assert state_shapes(trainer.params, trainer.plan) == expected
    assert all(type(value) is np.ndarray and value.dtype == np.float32 for value in state.values())
    random = {name: np.array(rng.standard_normal(shape, np.float32)) for name, shape in expected.items()}
    trainer.load_state_dict(random)
    assert_equal(trainer.state_dict(), random)
    kept = {name: value.copy() for name, value in state.items()}
    update(trainer, random_clips(), lr=0.5)
    assert_equal(state, kept)  # copies, which later updates leave alone


def case_params_are_parameters_and_statistics(backend):
    tsm, arch = make_tsm(backend)
    for trainer, shapes in ((make(backend), tiny.SHAPES), (tsm, tsm_spec.shapes(arch))):
        assert {param.name: param.shape for param in trainer.params} == shapes
        assert [param.name for param in trainer.params if param.is_statistic] == [
            name for name in shapes if ".running_" in name
        ]
        assert all(param.size == np.prod(param.shape) and param.rows is None for param in trainer.params)


def case_modes_are_resolved(backend):
    world = backend.WORLD
    assert (world.rank, world.size) == (0, 1) and re.fullmatch(backend.DEVICE, world.device)
    for wish, mode in backend.RESOLVED_MODES.items():
        assert world.resolve_mode(wish) == mode
    for wish, message in backend.REFUSED_MODES.items():
        with pytest.raises(UserError, match=message) as refusal:
            world.resolve_mode(wish)
        is_of_precision = str(refusal.value).startswith(("train.precision: ", "train.amp_level: "))
        assert isinstance(refusal.value, UnsupportedPrecision) == is_of_precision


def case_devices_that_are_not_there_are_refused(backend):
    for device in backend.REFUSED_DEVICES:
        with pytest.raises(UserError, match="device"):
            backend.start(Launch(), device)


def case_momentum_starts_as_zeros(backend):
    """Even where the first update is skipped."""
    trainer = make(backend)
    trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
    for skipped in (False, True):
        if skipped:
            assert update(trainer, random_batch())["skipped"] == 1
        momentum = {
            name: array for name, array in trainer.state_dict().items() if name.startswith("optimizer/momentum/")
        }
        assert momentum.keys() == {f"optimizer/momentum/{name}" for name in tiny.SHAPES if ".running_" not in name}
        assert not any(array.any() for array in momentum.values())


def case_the_world_tells_versions_and_its_accelerator(backend):
    """On a CPU no accelerator and no device memory; on a device that does not tell its own, that of this process."""
    world = backend.WORLD
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", world.version) and "+" not in world.version
    libraries = world.libraries()
    assert libraries.keys() == {"cuda", "cudnn", "nccl", "cann"}
    assert all(version is None or re.match(r"\d+\.\d", version) for version in libraries.values()), libraries
    if world.device.startswith("cpu"):
        assert world.accelerator() is None and world.peak_memory() is None
    else:
        assert world.accelerator() == {"name": world.device, "memory_bytes": None}
        assert world.peak_memory() >= 0


def case_the_average_of_every_update(backend):
    moving_average.check_the_average_of_every_update(backend)


def case_the_average_changes_nothing_else(backend):
    moving_average.check_the_average_changes_nothing_else(backend)


def case_a_loaded_average_continues_bit_for_bit(backend):
    moving_average.check_a_loaded_average_continues_bit_for_bit(backend)


def case_the_average_of_a_class_matrix(backend):
    moving_average.check_the_average_of_a_class_matrix(backend)
