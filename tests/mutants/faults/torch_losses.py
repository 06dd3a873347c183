"""Faults in losses of PyTorch."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, MARGIN, OBJECTIVE, UPDATE

TRAINER = "zoo/trainer/torch/trainer.py"
MARGINS = "zoo/trainer/margin.py"
OBJECTIVES = "zoo/trainer/objectives.py"
OPTIMIZER = "zoo/trainer/torch/optimizer.py"
CROSS_ENTROPY = "zoo/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/losses/segment/cross_entropy.py"
COMBINED = "zoo/losses/face/combined.py"

fault = partial(Fault, "torch")

FAULTS = [
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        "return self.label_smoothing > 0",
        "return False",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
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
        "a mean over all pixels instead of labelled ones",
        PIXEL_CROSS_ENTROPY,
        "labels, self.average, dtype",
        'labels, "all", dtype',
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
        ("task.average=valid",),
    ),
    fault(
        "one hard pixel too many",
        PIXEL_CROSS_ENTROPY,
        "ranked[min(kept, ranked.shape[0]) - 1]",
        "ranked[min(kept, ranked.shape[0] - 1)]",
        f"{OBJECTIVE}losses_of_the_hardest_pixels",
        "deeplabv3plus",
        ("task.ohem_kept=500",),
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
        "the margin is subtracted from the angle",
        COMBINED,
        "m1 * ops.atan2(sine, cosine) + ",
        "m1 * ops.atan2(sine, cosine) - ",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the angle is that of the sine",
        COMBINED,
        "ops.atan2(sine, cosine)",
        "ops.atan2(cosine, sine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the class filter comes after the margin",
        MARGINS,
        """        target_cosines, slopes = self.settings.margin(ops, of_targets(ops, cosines, rows), quality)
""",
        """        target_cosines, slopes = self.settings.margin(ops, of_targets(ops, cosines, rows), quality)
        cosines = set_targets_(ops, cosines, rows, target_cosines)
""",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "the gradient of the class matrix keeps its radial part",
        MARGINS,
        "ops.remove_radial_(grad_weight, weight, inverse_norms)",
        "grad_weight",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "drawn rows have no momentum",
        OPTIMIZER,
        "                    slot[shard.index] = row\n",
        "                    pass\n",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "the first rows are updated instead of the drawn ones",
        OPTIMIZER,
        "shard.values.detach()[shard.index] = rows",
        "shard.values.detach()[: len(shard.index)] = rows",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "drawn rows are not clipped",
        TRAINER,
        "Divisors(clipped, clipped if self.plan.clip_sharded else scale)",
        "Divisors(clipped, scale)",
        f"{CLIP}the_drawn_rows_are_clipped_with_the_model",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
]
