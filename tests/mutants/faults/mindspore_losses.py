"""Faults in losses of MindSpore."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import MARGIN, OBJECTIVE, UPDATE

MARGINS = "zoo/trainer/margin.py"
OBJECTIVES = "zoo/trainer/objectives.py"
CROSS_ENTROPY = "zoo/losses/classify/cross_entropy.py"
OPS = "zoo/trainer/mindspore/ops.py"
COMBINED = "zoo/losses/face/combined.py"
SHARD = "zoo/trainer/mindspore/partial_fc.py"

fault = partial(Fault, "mindspore")

FAULTS = [
    fault(
        "label smoothing over K - 1 classes",
        CROSS_ENTROPY,
        "smoothing / logits.shape[1] * scores.sum()",
        "smoothing / (logits.shape[1] - 1) * scores.sum()",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        "return self.label_smoothing > 0",
        "return self.label_smoothing > 1",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        OPS,
        "return losses * valid.astype(logits.dtype)",
        "return losses",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the auxiliary loss has weight 1",
        OBJECTIVES,
        "total + self.ops.number(self.loss.aux_weight, self.dtype) * loss",
        "total + loss",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative is 1",
        MARGINS,
        '        if self.settings.gradient == "straight":\n            slopes',
        "        if True:\n            slopes",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the sine lacks its square root",
        COMBINED,
        "ops.sqrt((1 - cosine) * (1 + cosine))",
        "(1 - cosine) * (1 + cosine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "filtered classes keep their gradient",
        MARGINS,
        "exps if is_filtered is None else ops.fill_zeros_(exps, is_filtered)",
        "exps",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "drawn rows have no weight decay",
        SHARD,
        "rows, gradient, *group, *slots",
        "rows, gradient, self.lr_scale, 0.0, *slots",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "the class matrix has the learning rate of the model",
        SHARD,
        "rows, gradient, *group, *slots",
        "rows, gradient, 1.0, self.weight_decay, *slots",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
    ),
]
