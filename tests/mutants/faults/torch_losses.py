"""Faults in losses of PyTorch."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, MARGIN, OBJECTIVE, UPDATE

TRAINER = "zoo/trainer/torch/trainer.py"
MARGINS = "zoo/trainer/torch/margin_logits.py"
OBJECTIVES = "zoo/trainer/torch/objectives.py"
OPTIMIZER = "zoo/trainer/torch/optimizer.py"
CROSS_ENTROPY = "zoo/trainer/torch/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/trainer/torch/losses/segment/cross_entropy.py"
COMBINED = "zoo/trainer/torch/losses/face/combined.py"

fault = partial(Fault, "torch")

FAULTS = [
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        ', reduction="sum", label_smoothing=self.smoothing',
        ', reduction="sum"',
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "the auxiliary loss has weight 1",
        OBJECTIVES,
        "total + self.settings.aux_weight * sum(",
        "total + sum(",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "a mean over all pixels instead of labelled ones",
        PIXEL_CROSS_ENTROPY,
        "return (labels != IGNORE_INDEX).sum()",
        "return torch.tensor(labels.numel())",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
        ("task.average=valid",),
    ),
    fault(
        "one hard pixel too many",
        PIXEL_CROSS_ENTROPY,
        "ranked[min(kept, len(ranked)) - 1]",
        "ranked[min(kept, len(ranked) - 1)]",
        f"{OBJECTIVE}losses_of_the_hardest_pixels",
        "deeplabv3plus",
        ("task.ohem_kept=500",),
    ),
    fault(
        "the margin's derivative is 1",
        MARGINS,
        "    if settings.straight_through:\n        slopes",
        "    if True:\n        slopes",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the margin is subtracted from the angle",
        COMBINED,
        "m1 * torch.atan2(sine, cosine) + m2",
        "m1 * torch.atan2(sine, cosine) - m2",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the angle is that of the sine",
        COMBINED,
        "torch.atan2(sine, cosine)",
        "torch.atan2(cosine, sine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the class filter comes after the margin",
        MARGINS,
        """        is_filtered = cosines > settings.interclass
        cosines.masked_fill_(is_filtered, 0)
    _scatter_targets(cosines, target_rows, target_cosines)
""",
        """        _scatter_targets(cosines, target_rows, target_cosines)
        is_filtered = cosines > settings.interclass
        cosines.masked_fill_(is_filtered, 0)
    else:
        _scatter_targets(cosines, target_rows, target_cosines)
""",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "the gradient of the class matrix keeps its radial part",
        MARGINS,
        "grad_weight.addcmul_(weight, (-radial * inverse_norms * inverse_norms)[:, None])",
        "grad_weight.mul_(1)",
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
