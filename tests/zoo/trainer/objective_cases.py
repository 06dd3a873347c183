"""Losses and predictions of segmentation in numpy and float64, one body over all frameworks (test_trainer.py)."""

import importlib
from types import SimpleNamespace

import numpy as np

from tests.zoo.trainer import exact_worker, segment_setup
from tests.zoo.trainer.trainer_setup import copied_state, update
from zoo.compare.reference import losses
from zoo.tasks import segment


def reference(name: str, content: str):
    """Return total, count and gradients of an objective in float64, by the definitions in zoo/tasks/segment.py."""
    settings, label = segment_setup.OBJECTIVES[name], segment_setup.random_mask(content)
    main, other = (losses.segment(segment_setup.random_logits(2 + i), label, settings, i > 0) for i in range(2))
    total = main[0] + settings.aux_weight * other[0]
    return total, main[1], [main[2], settings.aux_weight * other[2]]


def resize(values: np.ndarray, size) -> np.ndarray:
    """Resize (N, K, h, w) to (N, K, *size), bilinear with aligned corners, in float64."""
    for axis, length in zip((2, 3), size):
        positions = np.linspace(0, values.shape[axis] - 1, length)
        low = np.minimum(positions.astype(int), values.shape[axis] - 2)
        fraction = (positions - low).reshape([-1 if i == axis else 1 for i in range(4)])
        values = values.take(low, axis) * (1 - fraction) + values.take(low + 1, axis) * fraction
    return values


def class_scores(settings, images, size) -> np.ndarray:
    """Return the scores behind a class map, (N, K, H, W), by the definition in zoo/tasks/segment.py."""
    output, total, passes = segment.output(settings), 0, len(images) * (1 + settings.flip)
    for image in images:
        for mirrored in (False, True)[: 1 + settings.flip]:
            view = image[:, :, ::-1] if mirrored else image
            shape = (len(view), segment_setup.CLASSES, *view.shape[1:3])
            scores, counts = np.zeros(shape), np.zeros(view.shape[1:3])
            for top, bottom, left, right in segment.windows(view.shape[1:3], output):
                scores[:, :, top:bottom, left:right] += segment_setup.fixed_model(view[:, top:bottom, left:right])
                counts[top:bottom, left:right] += 1
            scores = scores / counts
            scores = resize(scores[..., ::-1] if mirrored else scores, size)
            total = total + (scores if passes == 1 else np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    return total


def check_losses(backend, name):
    for content in segment_setup.MASKS:
        expected, count, gradients = reference(name, content)
        logits = [segment_setup.random_logits(seed) for seed in (2, 3)]
        objective = segment_setup.OBJECTIVES[name]
        total, items, *results = backend.loss_of_logits(objective, logits, segment_setup.random_mask(content))
        np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-9)
        assert items == count
        for result, gradient in zip(results, gradients):
            np.testing.assert_allclose(result, gradient, atol=2e-6)


def case_losses_of_labelled_pixels(backend):
    check_losses(backend, "valid")


def case_losses_of_all_pixels(backend):
    check_losses(backend, "all")


def case_losses_of_the_hardest_pixels(backend):
    names = ("hardest", "threshold", "threshold_many", "smoothed_hardest", "smoothed_threshold")
    kept = {name: np.count_nonzero(reference(name, "mixed")[2][0].any(1)) for name in (*names, "valid")}
    assert kept["hardest"] == kept["smoothed_hardest"] == 600 and kept["threshold_many"] == 2 * 700
    assert kept["threshold"] > 2 * 30 and kept["valid"] == np.count_nonzero(segment_setup.random_mask("mixed") != 255)
    for name in names:
        check_losses(backend, name)


def case_class_maps_follow_their_definition(backend):
    """Of one image, at two scales, and larger than the input; every option changes the map."""
    images, small = segment_setup.random_images(), segment_setup.random_small_images()
    ops, maps = importlib.import_module(f"zoo.trainer.{backend.FRAMEWORK}.ops"), []
    arch = SimpleNamespace(num_classes=segment_setup.CLASSES, align_corners=True)

    def model(x):
        return backend.to_tensor(segment_setup.fixed_model(backend.to_array(x)))

    for name, settings in segment_setup.OUTPUTS.items():
        for case, scales, size in (
            ("one", [images], segment_setup.SIZE),
            ("two", [images, small], segment_setup.SIZE),
            ("larger", [images], (55, 80)),
        ):
            tensors = [backend.to_tensor(image) for image in scales]
            found = backend.to_array(segment.output(settings).predict(ops, arch, model, tensors, size))
            scores = class_scores(settings, scales, size)
            assert found.dtype == np.uint8 and found.shape == (2, *size)
            ranked = np.sort(scores, 1)
            clear = ranked[:, -1] - ranked[:, -2] > 1e-5  # elsewhere rounding may decide
            assert clear.mean() > 0.99 and len(np.unique(found)) == segment_setup.CLASSES
            assert np.array_equal(found[clear], scores.argmax(1)[clear]), (name, case)
            maps += [found] if case != "larger" else []
    assert all((a != b).mean() > 0.01 for i, a in enumerate(maps) for b in maps[:i])


def case_the_settings_reach_the_objective(backend):
    """The weight of the auxiliary logits, and both ways to average."""
    logits, mask = [segment_setup.random_logits(seed) for seed in (2, 3)], segment_setup.random_mask("mixed")

    def total(**options):
        return backend.loss_of_logits(segment.Settings(**options), logits, mask)[:2]

    (without, labelled), (whole, _), (double, pixels) = (
        total(aux_weight=weight, average=average) for weight, average in ((0, "valid"), (1, "valid"), (2, "all"))
    )
    np.testing.assert_allclose(double - whole, whole - without, rtol=1e-5)
    assert whole > 1.5 * without and labelled == (mask != segment.IGNORE_INDEX).sum() and pixels == mask.size


def case_a_batch_without_a_label_changes_statistics_alone(backend):
    """No loss, no gradient, no NaN, also where clipping divides by the norm; weight decay shrinks the weights."""
    trainer, (batch, *_) = exact_worker.build(backend.FRAMEWORK, exact_worker.CASES["mmseg"])
    batch["label"][:] = segment.IGNORE_INDEX
    before, numbers, after = copied_state(trainer), update(trainer, batch), trainer.state_dict()
    assert numbers["loss"] == numbers["grad_norm"] == numbers["skipped"] == 0
    for name, value in before.items():
        if ".running_" in name:
            assert np.isfinite(after[name]).all() and not np.array_equal(after[name], value)
        elif "/" not in name:
            factor, decay = trainer.plan.param_group(name)
            np.testing.assert_allclose(after[name], value * (1 - 0.05 * factor * decay), rtol=1e-13, err_msg=name)
