"""Trainers of small models and checks for the cases of the trainer interface."""

import numpy as np
import pytest

from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import MEAN, STD, Reference, random_batch
from zoo.data.batch import LABEL, Field
from zoo.models import initializers, load_model_class, load_spec, resolve_arch
from zoo.tasks import classify, load_task
from zoo.trainer.plan import ParamGroup, Plan

IMAGE = Field("image", (tiny.SIDE, tiny.SIDE, 3), "uint8", MEAN, STD)
VIDEO = Field("video", (2, 16, 16, 3), "uint8", MEAN, STD)
DROPOUT = Field("dropout", (tiny.CHANNELS,), "uint8")
DECAY = 1e-2
PARAM_GROUPS = {
    "conv.weight": ParamGroup(1.0, DECAY),
    "fc.weight": ParamGroup(5.0, DECAY),
    "fc.bias": ParamGroup(10.0, 0.0),
}


def param_group(name):
    return PARAM_GROUPS.get(name, ParamGroup(1.0, 0.0))


def frozen_norm(name):
    return ParamGroup(0.0, 0.0) if name.startswith("bn.") else param_group(name)


def make(backend, mode=None, smoothing=0.0, dropout=False, group=param_group, **plan):
    """Return a trainer of the model Tiny with tiny.initial_state()."""
    fields = (IMAGE, LABEL) + ((DROPOUT,) if dropout else ())
    masks = ("dropout",) if dropout else ()
    plan = Plan(fields, masks, group, mode or backend.FP32_MODES[0], **plan)
    trainer = backend.Trainer(backend.Tiny, None, classify.Settings(label_smoothing=smoothing), plan, backend.WORLD)
    trainer.load_state_dict(tiny.initial_state())
    return trainer


def make_identity(backend, field, mode=None, loss=None, label=LABEL, **plan):
    """Return a trainer of the model that returns its input."""
    plan = Plan((field, label), (), lambda name: ParamGroup(1.0, 0.0), mode or backend.FP32_MODES[0], **plan)
    return backend.Trainer(backend.Identity, None, loss or classify.Settings(), plan, backend.WORLD)


def make_model(backend, name, options, shape, classes, task=None, mode=None, group=None, **plan):
    """Return a trainer of a small model of the zoo with its initial weights, and its architecture.

    Args:
        shape: of a sample.
        task: settings of the task.
        group: in place of the model's own groups of parameters.
    """
    spec = load_spec(name)
    image = Field("video" if len(shape) == 4 else "image", shape, "uint8", MEAN, STD)
    label = Field("label", shape[:2], "uint8", missing=255) if spec.TASK == "segment" else LABEL
    arch = resolve_arch(spec, spec.Arch(**options), (image, label), classes)

    def of_model(parameter):
        factor, decay = spec.lr_and_decay_scale(arch, parameter)
        return ParamGroup(factor, decay * DECAY)

    masks = spec.dropout_masks(arch)
    fields, names = (image, label, *(mask.field for mask in masks)), tuple(mask.name for mask in masks)
    plan = Plan(fields, names, group or of_model, mode or backend.FP32_MODES[0], **plan)
    settings = load_task(spec.TASK).Settings(**(task or {}))
    trainer = backend.Trainer(load_model_class(name, backend.FRAMEWORK), arch, settings, plan, backend.WORLD)
    shapes = {param.name: param.shape for param in trainer.params}
    first = {key: spec.initializer(arch, key, shape) for key, shape in shapes.items()}
    trainer.load_state_dict({key: initializers.initialize(first[key], 1, key, shapes[key]) for key in shapes})
    return trainer, arch


def random_inputs(trainer, classes, samples=4, seed=0):
    """Return a batch with the fields of a trainer."""
    rng = np.random.default_rng(seed)
    image, label, *masks = trainer.plan.fields
    return {
        image.name: rng.integers(0, 256, (samples, *image.shape), np.uint8),
        "label": rng.integers(0, classes, (samples, *label.shape)).astype(label.dtype),
        **{mask.name: rng.integers(0, 2, (samples, *mask.shape)).astype(mask.dtype) for mask in masks},
        "valid": np.ones(samples, np.uint8),
    }


def make_tsm(backend, mode=None, smoothing=0.0, depth=18, partial_bn=False, shift_direction="future", **plan):
    """Return a trainer of a small TSM and its architecture; plan: `dropout` too."""
    options = {"depth": depth, "width": 8, "dropout": plan.pop("dropout", 0.0)}
    options |= {"partial_bn": partial_bn, "shift_direction": shift_direction}
    return make_model(backend, "tsm", options, VIDEO.shape, 5, {"label_smoothing": smoothing}, mode, **plan)


def random_clips(samples=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "video": rng.integers(0, 256, (samples, *VIDEO.shape), dtype=np.uint8),
        "label": rng.integers(0, 5, samples),
        "dropout": rng.integers(0, 2, (samples, 2, 64), dtype=np.uint8),
        "valid": np.ones(samples, np.uint8),
    }


def update(trainer, *micro_batches, lr=0.05, step=0):
    """Do one update; return its numbers."""
    return trainer.read(trainer.step([trainer.to_device(batch) for batch in micro_batches], lr, step))


def copied_state(trainer):
    return {name: np.array(array) for name, array in trainer.state_dict().items()}


def assert_equal(state, expected):
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)


def assert_close(state, expected, rtol, atol):
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=rtol, atol=atol, err_msg=name)


def check_fp64_updates(backend, mode, accumulate=1, frozen=False, dropout=False, smoothing=0.0, **plan):
    """Compare updates in fp64 with the formulas: to 1e-13 of a tensor's largest element, measured 2e-14."""
    group = frozen_norm if frozen else param_group
    trainer = make(backend, mode, smoothing, dropout, group, accumulate=accumulate, **plan)
    reference = Reference(tiny.initial_state(), group, plan.get("clip_norm"), smoothing, dropout)
    for step, lr in enumerate((0.05, 0.02)):
        micro_batches = [random_batch(4, seed=10 * step + part) for part in range(accumulate)]
        expected = reference.step(micro_batches, lr)
        numbers, state = update(trainer, *micro_batches, lr=lr, step=step), trainer.state_dict()
        assert {key: numbers[key] for key in expected} == pytest.approx(expected, rel=1e-14)
        momentum = {f"optimizer/momentum/{name}": value for name, value in reference.momentum.items()}
        assert_exact({name: state[name] for name in (*reference.state, *momentum)}, {**reference.state, **momentum})
        assert_exact(trainer.gradients(), reference.gradients)
    held_out = random_batch(3, seed=99)
    predictions = trainer.predict(trainer.to_device({"image": held_out["image"]}))
    assert_exact({"predictions": predictions}, {"predictions": reference.predict(held_out)})


def assert_exact(arrays, expected):
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        assert arrays[name].dtype == np.float64, name
        assert np.abs(arrays[name] - value).max() <= 1e-13 * np.abs(value).max(), name


def check_updates(backend, mode, steps=2, accumulate=1, frozen=False, dropout=False, smoothing=0.0, **plan):
    """Compare updates with the formulas: v = 0.9 v + (clipped gradient + decay p), p -= lr * factor * v."""
    group = frozen_norm if frozen else param_group
    trainer = make(backend, mode, smoothing, dropout, group, accumulate=accumulate, **plan)
    reference = Reference(tiny.initial_state(), group, plan.get("clip_norm"), smoothing, dropout)
    for step, lr in zip(range(steps), (0.05, 0.02, 0.01)):
        micro_batches = [random_batch(4, seed=10 * step + part) for part in range(accumulate)]
        expected = reference.step(micro_batches, lr)
        numbers, state = update(trainer, *micro_batches, lr=lr, step=step), trainer.state_dict()
        assert numbers.keys() == {"loss", "grad_norm", "scale", "skipped", "consecutive_skips"}
        assert numbers["loss"] == pytest.approx(expected["loss"], rel=5e-6)
        assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (1, 0, 0)
        if "clip_norm" in plan:
            assert expected["grad_norm"] > plan["clip_norm"]  # otherwise clipping is not tested
        for name, value in reference.state.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=backend.GRADIENT_ATOL, err_msg=name)
        for name, value in reference.momentum.items():
            momentum = state[f"optimizer/momentum/{name}"]
            np.testing.assert_allclose(momentum, value, rtol=1e-4, atol=backend.GRADIENT_ATOL, err_msg=name)
    held_out = random_batch(3, seed=99)
    predictions = trainer.predict(trainer.to_device({"image": held_out["image"]}))
    np.testing.assert_allclose(predictions, reference.predict(held_out), rtol=1e-5, atol=5e-6)
    assert_equal(trainer.state_dict(), state)  # an evaluation changes nothing


def check_compiled_updates(backend, *modes):
    """Compare a whole TSM, eager and compiled, with dropout, clipping and label smoothing."""
    eager, compiled = (make_tsm(backend, mode, smoothing=0.1, dropout=0.5, clip_norm=1.0)[0] for mode in modes)
    for seed, lr in enumerate((0.01, 0.005)):
        numbers, expected = (update(trainer, random_clips(seed=seed), lr=lr) for trainer in (compiled, eager))
        assert numbers == pytest.approx(expected, rel=1e-5)
    for rtol, atol in ((1e-5, 1e-5), (1e-4, 1e-6)):
        assert_close(compiled.state_dict(), eager.state_dict(), rtol, atol)
    before = copied_state(compiled)
    predictions, expected = (
        trainer.predict(trainer.to_device({"video": random_clips(seed=5)["video"]})) for trainer in (compiled, eager)
    )
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=1e-6)
    assert_equal(compiled.state_dict(), before)
