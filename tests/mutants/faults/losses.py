"""Faults in losses other than cross-entropy and ArcFace's; their formulas are those of all three frameworks."""

from tests.mutants.fault import Fault
from tests.mutants.killers import LOSS, MARGIN
from zoo.frameworks import FRAMEWORKS

SOFT, BINARY = ("data.mixup=0.2",), ("task.loss=binary_cross_entropy",)
FOCAL, DICE, LOVASZ = (("task.loss=" + name,) for name in ("focal", "dice", "lovasz"))
SMOOTHED = ("task.label_smoothing=0.1",)
COSFACE, ADAFACE = ("task.loss=cosface",), ("task.loss=adaface",)
WEIGHTS = (f"task.class_weights={[0.5, 2.0] * 9 + [1.0]}",)  # of Cityscapes' classes
PIXELS, VALUES = f"{LOSS}losses_of_segmentation_", f"{MARGIN}target_logits_follow_the_formula"
IMAGES = f"{LOSS}overlaps_of_images_follow_their_definitions"
AVERAGES = f"{MARGIN}the_averages_of_adaface_over_several_updates"

# Name, file of zoo/losses, what becomes what, killer, recipe, options.
FORMULAS = [
    (
        "the sum over classes",
        "classify/binary_cross_entropy",
        ("total if self.sum_classes else total / classes", "total"),
        (f"{LOSS}losses_of_labels", "resnet50", BINARY),
    ),
    (
        "the mean counts pixels without weights",
        "segment/cross_entropy",
        ('if self.average == "all" or self.class_weights is None:', "if True:"),
        (f"{PIXELS}with_class_weights", "deeplabv3plus", WEIGHTS),
    ),
    (
        "pixels are not smoothed",
        "segment/cross_entropy",
        ("        if self.is_smoothed:", "        if False:"),
        (f"{PIXELS}with_class_weights", "deeplabv3plus", SMOOTHED),
    ),
    (
        "hard pixels lose their weight",
        "segment/focal",
        ("ops.log_sigmoid(-signed)", "ops.log_sigmoid(signed)"),
        (f"{PIXELS}by_focal_loss", "deeplabv3plus", FOCAL),
    ),
    (
        "alpha and 1 - alpha change places",
        "segment/focal",
        ("target * alpha + (1 - target) * (1 - alpha)", "target * (1 - alpha) + (1 - target) * alpha"),
        (f"{PIXELS}by_focal_loss", "deeplabv3plus", (*FOCAL, "task.alpha=0.25")),
    ),
    (
        "ignored pixels count below the fraction",
        "segment/dice",
        (" * ops.cast(labels != IGNORE_INDEX, dtype)[:, None]", ""),
        (IMAGES, "deeplabv3plus", DICE),
    ),
    (
        "easy pixels come first",
        "segment/lovasz",
        ("errors - (1 - valid)", "1 - valid - errors"),
        (IMAGES, "deeplabv3plus", LOVASZ),
    ),
    ("the margin of CosFace is added", "face/combined", ("value - ", "value + "), (VALUES, "arcface", COSFACE)),
    (
        "short embeddings have the larger margin",
        "face/adaface",
        ("- m * quality", "+ m * quality"),
        (VALUES, "arcface", ADAFACE),
    ),
    (
        "lengths deviate as a whole population",
        "face/adaface",
        ("(count - 1)", "count"),
        (f"{MARGIN}adaface_is_that_of_its_authors", "arcface", ADAFACE),
    ),
    (
        "t_alpha and 1 - t_alpha change places",
        "face/adaface",
        ("new, old = ops.number", "old, new = ops.number"),
        (AVERAGES, "arcface", (*ADAFACE, "task.t_alpha=0.1")),
    ),
]
SKIPPED = {
    "torch": ("torch.where(output.consecutive_skips == 0, tensor, statistics[name])", "tensor"),
    "paddle": ("paddle.where(output.consecutive_skips == 0, tensor, statistics[name])", "tensor"),
    "mindspore": ("mint.select(output.consecutive_skips == 0, statistic, kept)", "statistic"),
}

FAULTS = [
    *(
        Fault(framework, name, f"zoo/losses/{file}.py", *slip, *noticed)
        for framework in FRAMEWORKS
        for name, file, slip, noticed in FORMULAS
    ),
    *(
        Fault(
            framework,
            "a soft label does not count",
            "zoo/trainer/objectives.py",
            "SOFT_LABEL if SOFT_LABEL in fields else LABEL.name",
            "LABEL.name",
            f"{LOSS}losses_of_soft_labels",
            "resnet50",
            SOFT,
        )
        for framework in FRAMEWORKS
    ),
    *(
        Fault(
            framework,
            "a skipped update moves the statistics of the loss",
            f"zoo/trainer/{framework}/trainer.py",
            *slip,
            AVERAGES,
        )
        for framework, slip in SKIPPED.items()
    ),
]
