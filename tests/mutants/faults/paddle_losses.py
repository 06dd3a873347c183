"""Faults in losses of Paddle."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import MARGIN, OBJECTIVE, UPDATE

OPTIMIZER = "zoo/trainer/paddle/optimizer.py"
OBJECTIVES = "zoo/trainer/objectives.py"
CROSS_ENTROPY = "zoo/losses/classify/cross_entropy.py"
COMBINED = "zoo/losses/face/combined.py"

fault = partial(Fault, "paddle")

FAULTS = [
    fault(
        "label smoothing over the other K - 1 classes",
        CROSS_ENTROPY,
        "smoothing / logits.shape[1] * scores",
        "smoothing / (logits.shape[1] - 1) * scores",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "the auxiliary loss has weight 0.3",
        OBJECTIVES,
        "self.ops.number(self.loss.aux_weight, self.dtype) * loss",
        "0.3 * loss",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        "zoo/trainer/paddle/ops.py",
        'labels = labels.astype("int64").unsqueeze(1)',
        'labels = (labels.astype("int64") * (labels != ignored).astype("int64")).unsqueeze(1)',
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative lacks the factor m1",
        COMBINED,
        "m1 * ops.sin(angle)",
        "ops.sin(angle)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m1=1.35", "task.threshold=false"),
    ),
    fault(
        "no cosine is subtracted beyond the threshold",
        COMBINED,
        "cosine - ops.number(self.threshold_offset, dtype)",
        "cosine",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m2=3.0",),
    ),
    fault(
        "the gradient lacks the scale of the logits",
        "zoo/trainer/margin.py",
        "ops.number(self.settings.scale, weight.dtype) * grad",
        "grad",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the momentum of drawn rows is not stored",
        OPTIMIZER,
        "                    paddle.scatter_(slot, shard.index, row)\n",
        "                    pass\n",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
]
