"""The losses of zoo/losses against numpy in float64 (zoo/compare/reference), one body over all frameworks.

Segmentation by the gradients of logits, classification by whole updates of a linear model.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer import segment_setup
from zoo.compare.reference import losses
from zoo.data.batch import LABEL, SOFT_LABEL, Field, soft_label
from zoo.losses import load_loss
from zoo.tasks import segment
from zoo.trainer.plan import ParamGroup, Plan

SIZE, CLASSES, INPUTS = (10, 14), segment_setup.CLASSES, 5
WEIGHTS = (0.5, 2.0, 1.0, 0.0, 3.0)
SEGMENT = {
    "weighted": ("cross_entropy", {"class_weights": WEIGHTS}),
    "weighted, all": ("cross_entropy", {"class_weights": WEIGHTS, "average": "all", "aux_weight": 0.7}),
    "smoothed": ("cross_entropy", {"label_smoothing": 0.1}),
    "smoothed, weighted": ("cross_entropy", {"label_smoothing": 0.3, "class_weights": WEIGHTS, "average": "all"}),
    "focal, weighted": ("focal", {"gamma": 0.5, "alpha": 0.25, "average": "all", "class_weights": WEIGHTS}),
    "focal": ("focal", {}),
    "focal, flat": ("focal", {"gamma": 0.0, "alpha": None}),
    "dice": ("dice", {}),
    "dice, naive": ("dice", {"squared": False, "eps": 0.7}),
    "lovasz": ("lovasz", {}),
    "lovasz, all": ("lovasz", {"classes": "all", "class_weights": WEIGHTS, "aux_weight": 0.1}),
}
ONE_EACH = ("smoothed, weighted", "focal, weighted", "dice", "lovasz")
COMPILED = ("focal, weighted", "lovasz")
CLASSIFY = {
    "cross_entropy": ("cross_entropy", {}),
    "smoothed": ("cross_entropy", {"label_smoothing": 0.1}),
    "weighted": ("cross_entropy", {"class_weights": WEIGHTS}),
    "smoothed, weighted": ("cross_entropy", {"label_smoothing": 0.1, "class_weights": WEIGHTS}),
    "binary": ("binary_cross_entropy", {"label_smoothing": 0.1}),
    "binary, sum": ("binary_cross_entropy", {"sum_classes": True}),
    "binary, cut": ("binary_cross_entropy", {"target_threshold": 0.2, "label_smoothing": 0.1}),
}


def scene(seed=0):
    """Return main and auxiliary logits, and labels of which some are ignored; the last image has no others."""
    rng = np.random.default_rng(seed)
    logits = [2 * rng.standard_normal((4, CLASSES, *SIZE), np.float32) for _ in range(2)]
    labels = rng.integers(0, CLASSES - 1, (4, *SIZE)).astype(np.uint8)  # none has the last class
    labels[1], labels[:, 3:5] = np.minimum(labels[1], 1), segment.IGNORE_INDEX
    labels[3] = segment.IGNORE_INDEX
    return logits, labels


def check_segment(backend, variant, mode=None, dtype=np.float32, gradient_rtol=None):
    name, options = SEGMENT[variant]
    settings = load_loss("segment", name)(**options)
    loss, (logits, labels) = settings, scene()
    rtol, atol = (1e-12, 1e-13) if mode and mode.is_fp64 else (1e-5, 2e-6)
    logits = [array.astype(np.float64 if mode and mode.is_fp64 else dtype) for array in logits]
    total, count, *gradients = backend.loss_of_logits(settings, logits, labels, mode)
    references = [losses.segment(array, labels, loss) for array in logits]
    expected = references[0][0] + settings.aux_weight * references[1][0]
    assert (total, count) == (pytest.approx(expected, rel=rtol), pytest.approx(references[0][1], rel=rtol)), variant
    for gradient, factor, reference in zip(gradients, (1, settings.aux_weight), references):
        expected = factor * reference[2]
        np.testing.assert_allclose(gradient, expected, rtol=gradient_rtol or rtol, atol=atol, err_msg=variant)


def check_losses(backend, *names):
    for variant, (name, _) in SEGMENT.items():
        if name in names:
            check_segment(backend, variant)


def case_losses_of_segmentation_with_class_weights(backend):
    check_losses(backend, "cross_entropy")


def case_losses_of_segmentation_by_focal_loss(backend):
    check_losses(backend, "focal")


def case_overlaps_of_images_follow_their_definitions(backend):
    check_losses(backend, "dice", "lovasz")


def case_losses_of_segmentation_in_fp64(backend):
    for variant in ONE_EACH:
        check_segment(backend, variant, backend.FP64_MODES[0])


def case_losses_of_segmentation_when_compiled(backend):
    for mode in backend.FP32_MODES:
        for variant in COMPILED if mode.compile else ():
            check_segment(backend, variant, mode)


def case_totals_and_counts_add_up_over_micro_batches(backend):
    """Also of Dice, which is a sum over images."""
    logits, labels = scene(1)
    for name, options in (SEGMENT[variant] for variant in ("smoothed, weighted", "dice")):
        objective = load_loss("segment", name)(**options)
        whole = backend.loss_of_logits(objective, logits, labels)
        parts = [
            backend.loss_of_logits(objective, [array[rows] for array in logits], labels[rows])
            for rows in (slice(0, 2), slice(2, 4))
        ]
        for i in (0, 1):
            assert whole[i] == pytest.approx(parts[0][i] + parts[1][i], rel=1e-5), name
        for i in (2, 3):
            gradient = np.concatenate([part[i] for part in parts])
            np.testing.assert_allclose(whole[i], gradient, rtol=1e-5, atol=1e-7, err_msg=name)


def case_extreme_logits_have_finite_gradients(backend):
    """Probabilities that are rounded to 0 and 1."""
    logits, labels = scene()
    logits = [(array * 200).astype(np.float32) for array in logits]
    for name, options in (SEGMENT[variant] for variant in ("focal", "dice")):
        objective = load_loss("segment", name)(**options)
        assert all(np.isfinite(value).all() for value in backend.loss_of_logits(objective, logits, labels)), name


def case_losses_of_segmentation_are_in_32_bits(backend):
    """Of logits in 16 bits, as under mixed precision."""
    for variant in ONE_EACH:
        check_segment(backend, variant, dtype=np.float16, gradient_rtol=2e-3)


def make(backend, name, options, soft, mode=None, inputs=INPUTS, classes=CLASSES):
    """Return a trainer of a linear classifier with random weights."""
    fields = (Field("x", (inputs,), "float32"), LABEL, *([soft_label(classes)] if soft else []))
    plan = Plan(fields, (), lambda name: ParamGroup(1.0, 0.0), mode or backend.FP32_MODES[0])
    arch = SimpleNamespace(inputs=inputs, embedding=classes)
    objective = load_loss("classify", name)(**options)
    trainer = backend.Trainer(backend.Linear, arch, objective, plan, backend.WORLD)
    rng = np.random.default_rng(1)
    trainer.load_state_dict({param.name: rng.standard_normal(param.shape, np.float32) for param in trainer.params})
    return trainer


def samples(soft, count=6):
    rng = np.random.default_rng(2)
    batch = {
        "x": rng.standard_normal((count, INPUTS), np.float32),
        "label": rng.integers(0, CLASSES, count),
        "valid": np.ones(count, np.uint8),
    }
    return {**batch, SOFT_LABEL: rng.dirichlet(np.ones(CLASSES), count).astype(np.float32)} if soft else batch


def check_classify(backend, variant, soft, mode):
    name, options = CLASSIFY[variant]
    trainer, batch = make(backend, name, options, soft, mode), samples(soft)
    state = {key: np.array(value, np.float64) for key, value in trainer.state_dict().items()}
    loss = load_loss("classify", name)(**options)
    logits = batch["x"].astype(np.float64) @ state["fc.weight"].T + state["fc.bias"]
    total, to_logits = losses.classify(logits, batch[SOFT_LABEL if soft else "label"], loss)
    expected = {"fc.weight": to_logits.T @ batch["x"] / 6, "fc.bias": to_logits.sum(0) / 6}
    parts = [{key: value[rows] for key, value in batch.items()} for rows in (slice(0, 3), slice(3, 6))]
    trainer_of_parts = make(backend, name, options, soft, mode)
    trainer_of_parts.plan = replace(trainer_of_parts.plan, accumulate=2)
    rtol, atol = (1e-13, 1e-15) if mode.is_fp64 else (1e-5, 1e-6)
    for each, micro_batches in ((trainer, [batch]), (trainer_of_parts, parts)):
        numbers = each.read(each.step([each.to_device(part) for part in micro_batches], 0.1, 0))
        assert numbers["loss"] == pytest.approx(total / 6, rel=rtol), variant
        for key, gradient in each.gradients().items():
            np.testing.assert_allclose(gradient, expected[key], rtol=rtol, atol=atol, err_msg=f"{variant} {key}")


def case_losses_of_labels(backend):
    for variant in CLASSIFY:
        check_classify(backend, variant, False, backend.FP32_MODES[0])
    for variant in ("smoothed", "weighted", "binary"):
        check_classify(backend, variant, False, backend.FP64_MODES[0])


def case_losses_of_soft_labels(backend):
    for variant in CLASSIFY:
        check_classify(backend, variant, True, backend.FP64_MODES[0])


def case_losses_of_classification_are_in_32_bits(backend):
    """In modes of 16 bits, with logits that 16 bits hold: those of a layer that returns its input."""
    batch = {**samples(True), "x": np.random.default_rng(4).integers(-40, 41, (6, CLASSES)).astype(np.float32) / 8}
    identity = {"fc.weight": np.eye(CLASSES, dtype=np.float32), "fc.bias": np.zeros(CLASSES, np.float32)}
    for mode in backend.SIXTEEN_BIT_MODES:
        for variant in ("smoothed, weighted", "binary"):
            name, options = CLASSIFY[variant]
            trainer = make(backend, name, options, True, mode._replace(compile=False), CLASSES)
            trainer.load_state_dict(identity)
            loss = load_loss("classify", name)(**options)
            total, _ = losses.classify(batch["x"], batch[SOFT_LABEL], loss)
            numbers = trainer.read(trainer.step([trainer.to_device(batch)], 0.1, 0))
            assert numbers["loss"] == pytest.approx(total / 6, rel=1e-6), (mode, variant)


def case_a_soft_label_of_one_class_is_its_label(backend):
    """And the label beside it does not count."""
    for name, options in (CLASSIFY["smoothed"], CLASSIFY["binary"]):
        batch, numbers = samples(True), []
        for soft in (False, True):
            if soft:
                batch[SOFT_LABEL] = np.eye(CLASSES, dtype=np.float32)[batch["label"]]
                batch["label"] = np.zeros_like(batch["label"])
            trainer = make(backend, name, options, soft)
            given = {key: value for key, value in batch.items() if soft or key != SOFT_LABEL}
            numbers.append(trainer.read(trainer.step([trainer.to_device(given)], 0.1, 0)))
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6), name


UPSTREAM_WEIGHTS = (0.5, 2.0, 1.0, 0.25, 3.0)
# Recorded once, in float64 (Lovász in float32), on upstream_scene(): torch.nn.CrossEntropyLoss of PyTorch; LovaszLoss
# with per_image=True, DiceLoss with use_sigmoid=False and py_sigmoid_focal_loss with valid_mask (FocalLoss, which calls
# it, fails on a CPU) of mmsegmentation 1.2.2; sigmoid_focal_loss of torchvision 0.28.0 on labelled pixels alone.
UPSTREAM_SEGMENT = [
    ("cross_entropy", {"class_weights": UPSTREAM_WEIGHTS}, 2.4688769245629563),  # torch
    ("cross_entropy", {"label_smoothing": 0.1}, 2.5852045160268973),  # torch
    (
        "cross_entropy",
        {"label_smoothing": 0.1, "class_weights": UPSTREAM_WEIGHTS},
        2.5089588815753676,  # torch
    ),
    ("dice", {}, 0.7148533698627858),  # mmseg, ignored pixels labelled 0
    ("dice", {"squared": False}, 0.7841999128796903),  # mmseg, naive_dice=True, ignored pixels labelled 0
    ("lovasz", {}, 0.8171492218971252),  # mmseg
    ("lovasz", {"classes": "all", "class_weights": UPSTREAM_WEIGHTS}, 1.116668462753296),  # mmseg
    ("focal", {"average": "all"}, 0.29462460479331093),  # mmseg
    (
        "focal",
        {"average": "all", "gamma": 1.5, "alpha": 0.25, "class_weights": UPSTREAM_WEIGHTS},
        0.5811225382027508,  # mmseg
    ),
    ("focal", {"alpha": 0.25}, 0.43855173951986554),  # torchvision, divided by the number of classes
]
# Recorded once in float64 on upstream_scores(): BinaryCrossEntropy and SoftTargetCrossEntropy of timm 1.0.20;
# cross_entropy of PyTorch, its sum divided by the samples where labels are weighted. (loss, its options, whether the
# target is a distribution, value)
UPSTREAM_CLASSIFY = [
    ("binary_cross_entropy", {"label_smoothing": 0.1}, False, 1.5105207080538463),  # timm
    ("binary_cross_entropy", {"label_smoothing": 0.1, "sum_classes": True}, False, 9.063124248323078),  # timm
    ("binary_cross_entropy", {"target_threshold": 0.2}, True, 1.0908453500072508),  # timm
    ("cross_entropy", {}, True, 2.553202885978635),  # timm
    ("cross_entropy", {"label_smoothing": 0.1}, True, 2.6008313944085333),  # PyTorch
    ("cross_entropy", {"class_weights": (*UPSTREAM_WEIGHTS, 1.5)}, False, 2.728078294480674),  # PyTorch
    ("cross_entropy", {"class_weights": (*UPSTREAM_WEIGHTS, 1.5)}, True, 3.0977533798624206),  # PyTorch
    (
        "cross_entropy",
        {"class_weights": (*UPSTREAM_WEIGHTS, 1.5), "label_smoothing": 0.1},
        False,
        2.890540480130683,  # PyTorch
    ),
    ("cross_entropy", {"class_weights": (*UPSTREAM_WEIGHTS, 1.5), "label_smoothing": 0.1}, True, 3.2232480569742545),
]


def upstream_scene():
    rng = np.random.default_rng(11)
    logits, labels = 2 * rng.standard_normal((3, 5, 6, 7)), rng.integers(0, 5, (3, 6, 7))
    labels[0, :2] = segment.IGNORE_INDEX
    labels[1] = np.minimum(labels[1], 2)
    return logits.astype(np.float32), labels.astype(np.uint8)


def upstream_scores():
    rng = np.random.default_rng(13)
    return 2 * rng.standard_normal((4, 6)), rng.integers(0, 6, 4), rng.dirichlet(np.ones(6), 4)


def case_values_of_upstream_projects(backend):
    for name, options, expected in UPSTREAM_SEGMENT:
        logits, labels = upstream_scene()
        if name == "dice":  # mmseg counts the predictions of ignored pixels
            labels[labels == segment.IGNORE_INDEX] = 0
        objective = load_loss("segment", name)(**options)
        total, count, *_ = backend.loss_of_logits(objective, [logits], labels)
        assert total / count == pytest.approx(expected, rel=1e-6), (name, options)
    logits, labels, distributions = upstream_scores()
    for name, options, soft, expected in UPSTREAM_CLASSIFY:
        trainer = make(backend, name, options, soft, inputs=6, classes=6)
        trainer.load_state_dict({"fc.weight": np.eye(6, dtype=np.float32), "fc.bias": np.zeros(6, np.float32)})
        batch = {"x": logits.astype(np.float32), "label": labels, "valid": np.ones(4, np.uint8)}
        if soft:
            batch[SOFT_LABEL] = distributions.astype(np.float32)
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], 0.0, 0))
        assert numbers["loss"] == pytest.approx(expected, rel=1e-6), (name, options)
