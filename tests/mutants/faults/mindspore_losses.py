"""Faults in losses of MindSpore."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import MARGIN, OBJECTIVE, UPDATE

MARGINS = "zoo/trainer/mindspore/margin_logits.py"
OBJECTIVES = "zoo/trainer/mindspore/objectives.py"
CROSS_ENTROPY = "zoo/trainer/mindspore/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/trainer/mindspore/losses/segment/cross_entropy.py"
COMBINED = "zoo/trainer/mindspore/losses/face/combined.py"
SHARD = "zoo/trainer/mindspore/shard.py"

fault = partial(Fault, "mindspore")

FAULTS = [
    fault(
        "label smoothing over K - 1 classes",
        CROSS_ENTROPY,
        "self.smoothing / logits.shape[1] * losses.sum()",
        "self.smoothing / (logits.shape[1] - 1) * losses.sum()",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        "self.is_smoothed = settings.label_smoothing > 0",
        "self.is_smoothed = settings.label_smoothing > 1",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        PIXEL_CROSS_ENTROPY,
        "(ops.log(ops.exp(shifted).sum(1)) - target_logits) * valid.astype(self.dtype)",
        "ops.log(ops.exp(shifted).sum(1)) - target_logits",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the auxiliary loss has weight 1",
        OBJECTIVES,
        "total + self.aux_weight * self.aux_loss",
        "total + self.aux_loss",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative is 1",
        MARGINS,
        "        if self.settings.straight_through:\n            slopes",
        "        if True:\n            slopes",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the sine lacks its square root",
        COMBINED,
        "sine = ops.sqrt((1 - cosine) * (1 + cosine))",
        "sine = (1 - cosine) * (1 + cosine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "filtered classes keep their gradient",
        MARGINS,
        "exps if is_filtered is None else self.fill_zeros(exps, is_filtered)",
        "exps",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "drawn rows have no weight decay",
        SHARD,
        "self.is_decayed = plan.param_group(name).weight_decay > 0",
        "self.is_decayed = False",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "the class matrix has the learning rate of the model",
        SHARD,
        "self.optimizer.formula(lr * self.lr_scale, applied",
        "self.optimizer.formula(lr, applied",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
    ),
]
