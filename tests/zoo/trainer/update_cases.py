"""Updates and predictions of the trainer interface, one body over all frameworks (test_trainer.py).

Truth is the numpy reference of a small model, or what another trainer of the same framework computes.
"""

from itertools import pairwise

import numpy as np
import pytest

from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import MEAN, STD, random_batch
from tests.zoo.trainer.trainer_setup import (
    VIDEO,
    assert_close,
    assert_equal,
    check_compiled_updates,
    check_fp64_updates,
    check_updates,
    copied_state,
    frozen_norm,
    make,
    make_identity,
    make_tsm,
    param_group,
    random_clips,
    update,
)
from zoo.data.batch import Field
from zoo.models.resnet import spec as resnet_spec
from zoo.tasks import classify, face, multilabel
from zoo.trainer import numpy_ops
from zoo.trainer.plan import ParamGroup
from zoo.trainer.update import round_gradients


def case_updates_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, steps=3)
        check_updates(backend, mode, steps=3, clip_norm=0.2, smoothing=0.1)


def case_updates_with_dropout_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, dropout=True, clip_norm=0.2)
    check_updates(backend, backend.FP32_MODES[0], dropout=True, accumulate=2)  # each micro-batch has its own masks


def case_updates_from_micro_batches_follow_the_formulas(backend):
    """Each micro-batch is normalized by its own statistics; the running statistics move once for each."""
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, accumulate=2, clip_norm=0.2, smoothing=0.1)


def case_updates_with_a_frozen_normalization_follow_the_formulas(backend):
    for mode in backend.FP32_MODES:
        check_updates(backend, mode, frozen=True, clip_norm=0.2)


def case_a_normalization_with_one_frozen_parameter_uses_the_batch(backend):
    """Running statistics are those that it uses where weight and bias are both frozen."""
    trainer = make(backend)
    loss = update(trainer, random_batch())["loss"]
    expected = {name: array for name, array in copied_state(trainer).items() if ".running_" in name}
    for frozen in ("bn.weight", "bn.bias"):
        one = make(backend, group=lambda name, frozen=frozen: ParamGroup(float(name != frozen), 0.0))
        assert update(one, random_batch())["loss"] == loss
        for name, array in expected.items():
            np.testing.assert_array_equal(one.state_dict()[name], array, err_msg=f"{frozen}: {name}")


def case_updates_with_synchronized_normalization_follow_the_formulas(backend):
    """The implementation for several ranks, with one."""
    check_updates(backend, backend.FP32_MODES[0], sync_bn=True, clip_norm=0.2)


def case_updates_in_fp64_follow_the_formulas(backend):
    for mode in backend.FP64_MODES:
        check_fp64_updates(backend, mode, accumulate=2, clip_norm=0.2, smoothing=0.1)
    for options in ({"dropout": True}, {"frozen": True, "clip_norm": 0.2}, {"sync_bn": True}):
        check_fp64_updates(backend, backend.FP64_MODES[0], **options)


def case_gradients_of_an_exact_run_are_those_of_fp64_rounded(backend):
    """The rest is defined bit by bit: optimizer_cases.py."""
    for mode, clip_norm in zip(backend.FP64_MODES, (0.2, None)):
        plain, exact = (
            make(backend, each, clip_norm=clip_norm, smoothing=0.1)
            for each in (mode, mode._replace(rounds_gradients=True))
        )
        for step, lr in enumerate((0.05, 0.02)):
            plain.load_state_dict(copied_state(exact))
            expected, numbers = (update(trainer, random_batch(seed=step), lr=lr) for trainer in (plain, exact))
            assert numbers["loss"] == expected["loss"]
            gradients, unrounded = exact.gradients(), plain.gradients()
            rounded = dict(zip(unrounded, round_gradients(numpy_ops, list(unrounded.values()))))
            norm = np.sqrt(sum((gradient**2).sum() for gradient in rounded.values()))
            assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-14)
            assert_equal(gradients, rounded)


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


def case_gradients_are_those_of_the_mean_loss(backend):
    """Without loss scale, clipping and weight decay, over all micro-batches; 0 where the loss does not depend on it."""
    for mode, accumulate in zip(backend.FP32_MODES, (2, 1)):
        options = {"clip_norm": 0.2, "accumulate": accumulate}
        trainer = make(backend, mode, smoothing=0.1, dropout=True, **options)
        reference = tiny.Reference(tiny.initial_state(), param_group, 0.2, 0.1, dropout=True)
        for step, scale in enumerate((1, 1024)):
            micro_batches = [random_batch(4, seed=10 * step + part) for part in range(accumulate)]
            assert reference.step(micro_batches, lr=0.05)["grad_norm"] > 0.2
            trainer.load_state_dict({"scaler/scale": np.array(scale, np.float32)})
            update(trainer, *micro_batches, lr=0.05, step=step)
            gradients, state = trainer.gradients(), copied_state(trainer)
            assert gradients.keys() == reference.gradients.keys()
            for name, expected in reference.gradients.items():
                assert gradients[name].dtype == np.float32 and gradients[name].flags.c_contiguous
                np.testing.assert_allclose(
                    gradients[name], expected, rtol=2e-5, atol=2 * backend.GRADIENT_ATOL, err_msg=name
                )
            assert_equal(trainer.state_dict(), state)


def case_gradients_of_a_skipped_update(backend):
    """Those that are finite can still be read."""
    trainer = make(backend, clip_norm=0.2)
    trainer.load_state_dict({"fc.weight": np.full(tiny.SHAPES["fc.weight"], np.inf, np.float32)})
    assert update(trainer, random_batch())["skipped"] == 1
    gradients = trainer.gradients()
    assert gradients.keys() == {name for name in tiny.SHAPES if ".running_" not in name}
    assert not all(np.isfinite(gradient).all() for gradient in gradients.values())


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
        loss = classify.Settings(label_smoothing=smoothing)
        trainer = make_identity(backend, Field("logits", (5,), "float32"), loss=loss)
        batch = {"logits": logits, "label": labels, "valid": np.ones(6, np.uint8)}
        expected, _ = tiny.cross_entropy(logits.astype(np.float64), labels, smoothing)
        assert update(trainer, batch)["loss"] == pytest.approx(expected, rel=1e-5)


def case_the_loss_of_several_classes_per_sample(backend):
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((6, 5), np.float32), rng.integers(0, 2, (6, 5)).astype(np.float32)
    label = Field("label", (5,), "float32", missing=-1)
    trainer = make_identity(backend, Field("logits", (5,), "float32"), loss=multilabel.Settings(), label=label)
    expected = np.mean(np.log1p(np.exp(-logits)) * targets + np.log1p(np.exp(logits)) * (1 - targets))
    batch = {"logits": logits, "label": targets, "valid": np.ones(6, np.uint8)}
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
            assert_not_updated(after, before)
            assert not np.array_equal(after["bn.running_mean"], before["bn.running_mean"])
            trainer.load_state_dict({"scaler/scale": np.array(1, np.float32)})
            numbers = update(trainer, random_batch(seed=seed))
            assert numbers["consecutive_skips"] == 0 and numbers["skipped"] == before["scaler/skipped"] + 2
            assert not np.array_equal(trainer.state_dict()["fc.weight"], before["fc.weight"])


def assert_not_updated(state, before):
    """Compare weights and momentum."""
    trained = [name for name in before if "/" not in name and ".running_" not in name]
    for name in (*trained, *(f"optimizer/momentum/{name}" for name in trained)):
        np.testing.assert_array_equal(state[name], before[name], err_msg=name)


def case_an_update_with_an_infinite_gradient_is_skipped(backend):
    """Infinite and not NaN, as in fp16 at the first loss scales: of weights behind a large feature."""
    batch = {**random_batch(), "label": np.zeros(4, np.int64)}  # no infinities of opposite signs are added
    state = {**tiny.initial_state(), "scaler/scale": np.array(2.0**16, np.float32)}
    state["bn.bias"][0], state["fc.weight"][:, 0] = 1e36, 0
    for mode, clip_norm in zip(backend.FP32_MODES, (None, 1.0)):
        trainer = make(backend, mode, clip_norm=clip_norm)
        trainer.load_state_dict(state)
        before = copied_state(trainer)
        numbers = update(trainer, batch)
        assert numbers["grad_norm"] == np.inf and np.isfinite(numbers["loss"])
        assert numbers["consecutive_skips"] == numbers["skipped"] == 1
        assert_not_updated(trainer.state_dict(), before)


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


def case_embeddings_of_an_image_and_its_mirror_image(backend):
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    field = Field("image", (3, 4, 3), "uint8", (0.0,) * 3, (1 / 255,) * 3)
    for flip in (False, True):
        trainer = make_identity(backend, field, output=face.Embeddings(flip))
        views = trainer.predict(trainer.to_device({"image": images}))
        assert views.shape == (2, 1 + flip, 3, 3, 4) and views.dtype == np.float32
        for view, source in zip(np.moveaxis(views, 1, 0), (images, images[:, :, ::-1])):
            np.testing.assert_array_equal(np.round(np.moveaxis(view, 1, -1)), source)


def case_results_can_be_read_after_later_updates(backend):
    """The mean loss of an interval is read at its end."""
    batches = [random_batch(seed=seed) for seed in range(4)]
    for mode in (*backend.FP32_MODES, *backend.SIXTEEN_BIT_MODES[:1]):
        trainers = [make(backend, mode, loss_scale=2.0, dynamic_loss_scale=True) for _ in range(2)]
        at_once = [update(trainers[0], batch, step=step) for step, batch in enumerate(batches)]
        results = [trainers[1].step([trainers[1].to_device(batch)], 0.05, step) for step, batch in enumerate(batches)]
        assert [trainers[1].read(result) for result in results] == at_once
