"""Faults in losses of Paddle."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import MARGIN, OBJECTIVE, UPDATE

OPTIMIZER = "zoo/trainer/paddle/optimizer.py"
OBJECTIVES = "zoo/trainer/paddle/objectives.py"
CROSS_ENTROPY = "zoo/trainer/paddle/losses/classify/cross_entropy.py"
COMBINED = "zoo/trainer/paddle/losses/face/combined.py"

fault = partial(Fault, "paddle")

FAULTS = [
    fault(
        "label smoothing over the other K - 1 classes",
        CROSS_ENTROPY,
        "label_smoothing=self.smoothing)",
        "label_smoothing=self.smoothing * logits.shape[1] / (logits.shape[1] - 1))",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "the auxiliary loss has weight 0.3",
        OBJECTIVES,
        "self.settings.aux_weight * sum(",
        "0.3 * sum(",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        OBJECTIVES,
        'batch["label"].astype("int64"), output',
        'batch["label"].astype("int64") * (batch["label"] != segment.IGNORE_INDEX).astype("int64"), output',
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative lacks the factor m1",
        COMBINED,
        "m1 * paddle.sin(angle)",
        "paddle.sin(angle)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m1=1.35", "task.threshold=false"),
    ),
    fault(
        "no cosine is subtracted beyond the threshold",
        COMBINED,
        "cosine - combined.threshold_offset(m2)",
        "cosine",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m2=3.0",),
    ),
    fault(
        "the gradient lacks the scale of the logits",
        "zoo/trainer/paddle/margin.py",
        "grad_output * ctx.settings.scale",
        "grad_output",
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
