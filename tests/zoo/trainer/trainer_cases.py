"""The cases of the trainer interface (zoo/trainer/protocol.py), one body over all frameworks (test_trainer.py).

Truth is the numpy reference of a small model, or what another trainer of the same framework computes.
"""

import re
from itertools import pairwise

import numpy as np
import pytest

from data.batch import LABEL, Field
from data.errors import UserError
from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import MEAN, STD, Reference, random_batch
from zoo.models import initializers, load_model_class
from zoo.models.resnet import spec as resnet_spec
from zoo.models.tsm import spec as tsm_spec
from zoo.tasks import face
from zoo.tasks.classify import CrossEntropy
from zoo.trainer.protocol import Launch, ParamGroup, Plan

IMAGE = Field("image", (tiny.SIDE, tiny.SIDE, 3), "uint8", MEAN, STD)
VIDEO = Field("video", (2, 16, 16, 3), "uint8", MEAN, STD)
DROPOUT = Field("dropout", (tiny.CHANNELS,), "uint8")
DECAY = 1e-2
PARAM_GROUPS = {
    "conv.weight": ParamGroup(1.0, DECAY),
    "fc.weight": ParamGroup(5.0, DECAY),
    "fc.bias": ParamGroup(10.0, 0.0),
}
STATE = ("scale", "good", "skipped")  # of the loss scale


def param_group(name):
    return PARAM_GROUPS.get(name, ParamGroup(1.0, 0.0))


def frozen_norm(name):
    return ParamGroup(0.0, 0.0) if name.startswith("bn.") else param_group(name)


def make(backend, mode=None, smoothing=0.0, dropout=False, group=param_group, **plan):
    """Return a trainer of the model Tiny with tiny.initial_state()."""
    fields = (IMAGE, LABEL) + ((DROPOUT,) if dropout else ())
    masks = ("dropout",) if dropout else ()
    plan = Plan(fields, masks, group, mode or backend.FP32_MODES[0], **plan)
    trainer = backend.Trainer(backend.Tiny, None, CrossEntropy(smoothing), plan, backend.WORLD)
    trainer.load_state_dict(tiny.initial_state())
    return trainer


def make_identity(backend, field, mode=None, smoothing=0.0, **plan):
    """Return a trainer of the model that returns its input."""
    plan = Plan((field, LABEL), (), lambda name: ParamGroup(1.0, 0.0), mode or backend.FP32_MODES[0], **plan)
    return backend.Trainer(backend.Identity, None, CrossEntropy(smoothing), plan, backend.WORLD)


def make_tsm(backend, mode=None, smoothing=0.0, dropout=0.0, partial_bn=False, depth=18, **plan):
    """Return a trainer of a small TSM and its architecture."""
    arch = tsm_spec.Arch(depth=depth, width=8, num_classes=5, segments=2, dropout=dropout, partial_bn=partial_bn)

    def group(name):
        factor, decay = tsm_spec.lr_and_decay_scale(arch, name)
        return ParamGroup(factor, decay * DECAY)

    masks = tsm_spec.dropout_masks(arch)
    fields = (VIDEO, LABEL, *(mask.field for mask in masks))
    plan = Plan(fields, tuple(mask.name for mask in masks), group, mode or backend.FP32_MODES[0], **plan)
    model = load_model_class("tsm", backend.FRAMEWORK)
    trainer = backend.Trainer(model, arch, CrossEntropy(smoothing), plan, backend.WORLD)
    trainer.load_state_dict(
        {
            param.name: initializers.initialize(
                tsm_spec.initializer(arch, param.name, param.shape), 1, param.name, param.shape
            )
            for param in trainer.params
        }
    )
    return trainer, arch


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
            momentum = state[f"momentum/{name}"]
            np.testing.assert_allclose(momentum, value, rtol=1e-4, atol=backend.GRADIENT_ATOL, err_msg=name)
    held_out = random_batch(3, seed=99)
    predictions = trainer.predict(trainer.to_device({"image": held_out["image"]}))
    np.testing.assert_allclose(predictions, reference.predict(held_out), rtol=1e-5, atol=5e-6)
    assert_equal(trainer.state_dict(), state)  # an evaluation changes nothing


def case_updates_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, steps=3)
        check_updates(backend, mode, steps=3, clip_norm=0.2, smoothing=0.1)


def case_updates_with_dropout_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, dropout=True, clip_norm=0.2)


def case_updates_from_micro_batches_follow_the_formulas(backend):
    """Each micro-batch is normalized by its own statistics; the running statistics move once for each."""
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, accumulate=2, clip_norm=0.2, smoothing=0.1)


def case_updates_with_a_frozen_normalization_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, frozen=True, clip_norm=0.2)


def case_updates_with_synchronized_normalization_follow_the_formulas(backend):
    """The implementation for several ranks, with one."""
    check_updates(backend, backend.FP32_MODES[0], sync_bn=True, clip_norm=0.2)


def case_momentum_decay_and_clipping_act_on_the_gradient(backend):
    """As above, but from the framework's own gradients, so that its rounding of those is no excuse."""
    for mode in backend.FP32_MODES:
        bare, trainer = make(backend, mode, group=lambda name: ParamGroup(1.0, 0.0)), make(backend, mode, clip_norm=0.2)
        momentum = dict.fromkeys((name for name in tiny.SHAPES if ".running_" not in name), 0.0)
        for step, lr in enumerate((0.05, 0.02)):
            before, batch = copied_state(trainer), random_batch(seed=step)
            bare.load_state_dict({name: before[name] for name in tiny.SHAPES})
            bare.load_state_dict({f"momentum/{name}": np.zeros(tiny.SHAPES[name], np.float32) for name in momentum})
            expected, gradients = update(bare, batch, lr=0.0), bare.state_dict()
            gradients = {name: gradients[f"momentum/{name}"].astype(np.float64) for name in momentum}
            norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
            numbers, after = update(trainer, batch, lr=lr), trainer.state_dict()
            assert numbers["loss"] == pytest.approx(expected["loss"], rel=1e-6)
            assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-5) and norm > 0.2
            for name, gradient in gradients.items():
                factor, decay = param_group(name)
                momentum[name] = 0.9 * momentum[name] + gradient * 0.2 / norm + decay * before[name]
                weight = before[name] - lr * factor * momentum[name]
                np.testing.assert_allclose(after[name], weight, rtol=1e-5, atol=1e-7, err_msg=name)
                np.testing.assert_allclose(
                    after[f"momentum/{name}"], momentum[name], rtol=1e-4, atol=1e-7, err_msg=name
                )


def case_gradients_sum_over_uneven_micro_batches(backend):
    """With frozen statistics accumulation is exact: the mean over all samples, not a mean of means."""
    batch = random_batch(6)
    for mode in backend.FP32_MODES:
        whole = make(backend, mode, group=frozen_norm)
        expected, state = update(whole, batch, lr=0.1), whole.state_dict()
        # A training run has even ones only. Paddle clears the gradients when it compiles for another size meanwhile.
        for bounds in ((0, 3, 6),) if mode.compile else ((0, 3, 6), (0, 2, 6)):
            split = make(backend, mode, group=frozen_norm, accumulate=2)
            micro_batches = [
                {name: array[first:last] for name, array in batch.items()} for first, last in pairwise(bounds)
            ]
            numbers = update(split, *micro_batches, lr=0.1)
            assert numbers["loss"] == pytest.approx(expected["loss"], rel=1e-6)
            assert numbers == pytest.approx(expected, rel=1e-5)
            assert_close(split.state_dict(), state, 1e-4, 1e-6)


def case_pixels_are_normalized_by_the_field(backend):
    """uint8 images and videos, channels last, become normalized float32, channels first; other inputs pass."""
    video = random_clips()["video"]
    expected = np.moveaxis((video.astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD), -1, -3)
    for mode in backend.FP32_MODES:
        trainer = make_identity(backend, VIDEO, mode)
        normalized = trainer.predict(trainer.to_device({"video": video}))
        assert normalized.dtype == np.float32
        np.testing.assert_allclose(normalized, expected, atol=1e-6)
        trainer = make_identity(backend, Field("image", VIDEO.shape[1:], "uint8", MEAN, STD), mode)
        images = trainer.predict(trainer.to_device({"image": video[:, 0]}))
        np.testing.assert_array_equal(images, normalized[:, 0])
        trainer = make_identity(backend, Field("features", (4,), "float32"), mode)
        features = np.arange(8, dtype=np.float32).reshape(2, 4)
        np.testing.assert_array_equal(trainer.predict(trainer.to_device({"features": features})), features)


def case_a_batch_of_the_host_is_left_alone(backend):
    trainer, batch = make(backend), random_batch()
    kept = {name: array.copy() for name, array in batch.items()}
    update(trainer, batch)
    trainer.predict(trainer.to_device({"image": batch["image"]}))
    assert_equal(batch, kept)


def case_label_smoothing_is_spread_over_all_classes(backend):
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((6, 5), np.float32), rng.integers(0, 5, 6)
    for smoothing in (0.0, 0.1):
        trainer = make_identity(backend, Field("logits", (5,), "float32"), smoothing=smoothing)
        batch = {"logits": logits, "label": labels, "valid": np.ones(6, np.uint8)}
        expected, _ = tiny.cross_entropy(logits.astype(np.float64), labels, smoothing)
        assert update(trainer, batch)["loss"] == pytest.approx(expected, rel=1e-5)


def case_an_update_without_finite_gradient_is_skipped(backend):
    for mode in backend.FP32_MODES:
        trainer = make(backend, mode, clip_norm=1.0)
        for seed in (1, 2):  # the first update may be skipped, and any later one
            before = copied_state(trainer)
            trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
            for skips in (1, 2):
                numbers = update(trainer, random_batch(seed=seed))
                assert numbers["consecutive_skips"] == skips
                assert numbers["skipped"] == before["scaler/skipped"] + skips
                assert not np.isfinite(numbers["grad_norm"])
            after = trainer.state_dict()
            trained = [name for name in before if "/" not in name and ".running_" not in name]
            for name in (*trained, *(f"momentum/{name}" for name in trained)):
                np.testing.assert_array_equal(after[name], before[name], err_msg=name)
            assert not np.array_equal(after["bn.running_mean"], before["bn.running_mean"])
            trainer.load_state_dict({"scaler/scale": np.array(1, np.float32)})
            numbers = update(trainer, random_batch(seed=seed))
            assert numbers["consecutive_skips"] == 0 and numbers["skipped"] == before["scaler/skipped"] + 2
            assert not np.array_equal(trainer.state_dict()["fc.weight"], before["fc.weight"])


def case_momentum_starts_as_zeros(backend):
    """Even where the first update is skipped."""
    trainer = make(backend)
    trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
    for skipped in (False, True):
        if skipped:
            assert update(trainer, random_batch())["skipped"] == 1
        momentum = {name: array for name, array in trainer.state_dict().items() if name.startswith("momentum/")}
        assert momentum.keys() == {f"momentum/{name}" for name in tiny.SHAPES if ".running_" not in name}
        assert not any(array.any() for array in momentum.values())


def case_the_loss_scale_halves_and_doubles(backend):
    """It halves after a skipped update, and doubles after 2000 in a row that were not."""
    mode = next((mode for mode in backend.SIXTEEN_BIT_MODES if mode.compute == "fp16"), backend.FP32_MODES[0])
    trainer = make(backend, mode, loss_scale=8.0)
    backend.make_loss_scale_dynamic(trainer, 8.0)
    head = np.array(trainer.state_dict()["fc.weight"])
    trainer.load_state_dict({"fc.weight": np.full_like(head, np.nan)})
    assert update(trainer, random_batch())["scale"] == 8.0 and trainer.state_dict()["scaler/scale"] == 4.0
    assert trainer.nonfinite_report().startswith("not finite: weights fc.weight")
    trainer.load_state_dict({"fc.weight": head, "scaler/good": np.array(1998, np.float32)})
    for scale, *after in ((4.0, 4.0, 1999, 1), (4.0, 8.0, 0, 1), (8.0, 8.0, 1, 1)):
        numbers, state = update(trainer, random_batch(), lr=0.001), trainer.state_dict()
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (scale, 1, 0)
        assert [float(state[f"scaler/{name}"]) for name in STATE] == after
    assert trainer.nonfinite_report() == "all finite"


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


def check_compiled_updates(backend, *modes):
    """Compare a whole TSM, eager and compiled, with dropout, clipping and label smoothing."""
    eager, compiled = (make_tsm(backend, mode, smoothing=0.1, dropout=0.5, clip_norm=1.0)[0] for mode in modes)
    for seed, lr in enumerate((0.01, 0.005)):
        numbers, expected = (update(trainer, random_clips(seed=seed), lr=lr) for trainer in (compiled, eager))
        assert numbers == pytest.approx(expected, rel=1e-5)
    assert_close(compiled.state_dict(), eager.state_dict(), 1e-5, 1e-5)
    before = copied_state(compiled)
    predictions, expected = (
        trainer.predict(trainer.to_device({"video": random_clips(seed=5)["video"]})) for trainer in (compiled, eager)
    )
    np.testing.assert_allclose(predictions, expected, rtol=1e-5, atol=1e-6)
    assert_equal(compiled.state_dict(), before)


def case_compiled_and_eager_updates_agree(backend):
    eager, *others = backend.FP32_MODES
    for mode in others:  # of PyTorch another layout; torch/test_trainer.py compiles, which takes longer
        check_compiled_updates(backend, eager, mode)


def case_partial_bn_freezes_all_but_the_first_normalization(backend):
    trainer, _ = make_tsm(backend, partial_bn=True)
    before = copied_state(trainer)
    update(trainer, random_clips(), lr=0.5)
    trainer.predict(trainer.to_device({"video": random_clips()["video"]}))  # an evaluation must not unfreeze
    update(trainer, random_clips(), lr=0.5)
    changed = {
        name
        for name, value in trainer.state_dict().items()
        if "/" not in name and not np.array_equal(value, before[name])
    }
    norms = {param.name for param in trainer.params if resnet_spec.is_norm(param.name)}
    assert changed & norms == {f"bn1.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    assert {param.name for param in trainer.params} - norms <= changed


def case_dropout_follows_the_mask(backend):
    """Ones keep features and scale them up, zeros leave the bias alone; an evaluation ignores the mask."""
    trainer, arch = make_tsm(backend, dropout=0.5)
    plain, _ = make_tsm(backend)
    bias = np.linspace(-1, 1, arch.num_classes, dtype=np.float32)
    clips = random_clips()
    losses = []
    for value in (0, 1):
        trainer.load_state_dict({"fc.bias": bias})
        batch = {**clips, "dropout": np.full_like(clips["dropout"], value)}
        losses.append(update(trainer, batch, lr=0.0)["loss"])
    without_features, _ = tiny.cross_entropy(np.tile(bias, (4, 1)).astype(np.float64), clips["label"], 0.0)
    assert losses[0] == pytest.approx(without_features, rel=1e-5) and abs(losses[1] - losses[0]) > 1e-3
    head = np.array(plain.state_dict()["fc.weight"])
    plain.load_state_dict({"fc.bias": bias, "fc.weight": 2 * head})  # as if every feature was doubled
    assert losses[1] == pytest.approx(update(plain, clips, lr=0.0)["loss"], rel=1e-5)
    state = {name: value for name, value in trainer.state_dict().items() if "/" not in name}
    plain.load_state_dict(state)
    predictions, expected = (each.predict(each.to_device({"video": clips["video"]})) for each in (trainer, plain))
    np.testing.assert_allclose(predictions, expected, atol=1e-6)


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
        **{f"momentum/{name}": shapes[name] for name in trained},
        **{f"scaler/{name}": () for name in STATE},
    }
    state, rng = trainer.state_dict(), np.random.default_rng(3)
    assert {name: value.shape for name, value in state.items()} == expected
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


def case_embeddings_of_an_image_and_its_mirror_image(backend):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    field = Field("image", (3, 4, 3), "uint8", (0.0,) * 3, (1 / 255,) * 3)
    for flip in (False, True):
        trainer = make_identity(backend, field, output=face.Embeddings(flip))
        views = trainer.predict(trainer.to_device({"image": images}))
        assert views.shape == (2, 1 + flip, 3, 3, 4) and views.dtype == np.float32
        for view, source in zip(np.moveaxis(views, 1, 0), (images, images[:, :, ::-1])):
            np.testing.assert_array_equal(np.round(np.moveaxis(view, 1, -1)), source)


def case_modes_are_resolved(backend):
    world = backend.WORLD
    assert (world.rank, world.size) == (0, 1) and re.fullmatch(backend.DEVICE, world.device)
    for wish, mode in backend.RESOLVED_MODES.items():
        assert world.resolve_mode(wish) == mode
    for wish, message in backend.REFUSED_MODES.items():
        with pytest.raises(UserError, match=message):
            world.resolve_mode(wish)


def case_devices_that_are_not_there_are_refused(backend):
    for device in backend.REFUSED_DEVICES:
        with pytest.raises(UserError, match="device"):
            backend.start(Launch(), device)
