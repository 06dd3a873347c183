"""Losses and predictions of segmentation in numpy and float64, one body over all frameworks (test_trainer.py)."""

import numpy as np

from tests.zoo.trainer import segment_worker
from tests.zoo.trainer.test_segment_parity import class_scores, reference
from zoo.tasks import segment


def check_losses(backend, name):
    for content in segment_worker.MASKS:
        expected, count, gradients = reference(name, content)
        logits = [segment_worker.random_logits(seed) for seed in (2, 3)]
        objective = segment_worker.OBJECTIVES[name]
        total, items, *results = backend.loss_of_logits(objective, logits, segment_worker.random_mask(content))
        np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-9)
        assert items == count
        for result, gradient in zip(results, gradients):
            np.testing.assert_allclose(result, gradient, atol=2e-6)


def case_losses_of_labelled_pixels(backend):
    check_losses(backend, "valid")


def case_losses_of_all_pixels(backend):
    check_losses(backend, "all")


def case_losses_of_the_hardest_pixels(backend):
    for name in ("hardest", "threshold", "threshold_many", "smoothed_hardest", "smoothed_threshold"):
        check_losses(backend, name)


def case_class_maps_follow_their_definition(backend):
    arrays = segment_worker.Worker(backend.FRAMEWORK).class_maps()
    for name, settings in segment_worker.OUTPUTS.items():
        scores = class_scores(settings, [segment_worker.random_images()], segment_worker.SIZE)
        ranked = np.sort(scores, 1)
        clear = ranked[:, -1] - ranked[:, -2] > 1e-5  # elsewhere rounding may decide
        assert np.array_equal(arrays[f"{name}/one"][clear], scores.argmax(1)[clear]), name


def case_the_settings_reach_the_objective(backend):
    """The weight of the auxiliary logits, and both ways to average."""
    logits, mask = [segment_worker.random_logits(seed) for seed in (2, 3)], segment_worker.random_mask("mixed")

    def total(**options):
        return backend.loss_of_logits(segment.Settings(**options), logits, mask)[:2]

    (without, labelled), (whole, _), (double, pixels) = (
        total(aux_weight=weight, average=average) for weight, average in ((0, "valid"), (1, "valid"), (2, "all"))
    )
    np.testing.assert_allclose(double - whole, whole - without, rtol=1e-5)
    assert whole > 1.5 * without and labelled == (mask != segment.IGNORE_INDEX).sum() and pixels == mask.size
