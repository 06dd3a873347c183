"""Faults in losses other than cross-entropy and ArcFace's, in all three frameworks."""

from tests.mutants.fault import Fault
from tests.mutants.killers import LOSS, MARGIN

SOFT, BINARY = ("data.mixup=0.2",), ("task.loss=binary_cross_entropy",)
FOCAL, DICE, LOVASZ = (("task.loss=" + name,) for name in ("focal", "dice", "lovasz"))
SMOOTHED = ("task.label_smoothing=0.1",)
COSFACE, ADAFACE = ("task.loss=cosface",), ("task.loss=adaface",)
AVERAGES = (*ADAFACE, "task.t_alpha=0.1")
WEIGHTS = (f"task.class_weights={[0.5, 2.0] * 9 + [1.0]}",)  # of Cityscapes' classes
Slip = tuple[str, str]  # what becomes what


def faults(
    framework: str,
    label_alone: Slip,
    class_sum: Slip,
    pixel_count: Slip,
    sharp_pixels: Slip,
    easy_pixels: Slip,
    swapped_alpha: Slip,
    ignored_pixels: Slip,
    easy_pixels_first: Slip,
    deviation: Slip,
    averages: Slip,
    skipped: Slip,
) -> list[Fault]:
    """Return the same slips in a framework.

    Args:
        label_alone: if a soft label is not the target where there is one.
        class_sum: if binary cross-entropy adds classes up.
        pixel_count: if pixels are counted without their class weights.
        sharp_pixels: if the label smoothing of pixels is left out.
        easy_pixels: if easy pixels keep their weight, and hard ones lose it.
        swapped_alpha: if alpha and 1 - alpha change places.
        ignored_pixels: if ignored pixels count in the Dice loss.
        easy_pixels_first: if errors are sorted in ascending order for Lovász's.
        deviation: if the standard deviation of lengths is that of the population.
        averages: if t_alpha and 1 - t_alpha change places.
        skipped: if an update that is skipped moves the running statistics of the loss.
    """
    pixels, values = f"{LOSS}losses_of_segmentation_", f"{MARGIN}target_logits_follow_the_formula"
    images = f"{LOSS}overlaps_of_images_follow_their_definitions"
    binary, weighted = "losses/classify/binary_cross_entropy", "losses/segment/cross_entropy"
    updates = f"{MARGIN}the_averages_of_adaface_over_several_updates"
    angle = ("- self.m * quality", "+ self.m * quality")
    rows = [
        ("a soft label does not count", "objectives", label_alone, f"{LOSS}losses_of_soft_labels", "resnet50", SOFT),
        ("the sum over classes", binary, class_sum, f"{LOSS}losses_of_labels", "resnet50", BINARY),
        (
            "the mean counts pixels without weights",
            weighted,
            pixel_count,
            f"{pixels}with_class_weights",
            "deeplabv3plus",
            WEIGHTS,
        ),
        ("pixels are not smoothed", weighted, sharp_pixels, f"{pixels}with_class_weights", "deeplabv3plus", SMOOTHED),
        (
            "hard pixels lose their weight",
            "losses/segment/focal",
            easy_pixels,
            f"{pixels}by_focal_loss",
            "deeplabv3plus",
            FOCAL,
        ),
        (
            "alpha and 1 - alpha change places",
            "losses/segment/focal",
            swapped_alpha,
            f"{pixels}by_focal_loss",
            "deeplabv3plus",
            (*FOCAL, "task.alpha=0.25"),
        ),
        (
            "ignored pixels count below the fraction",
            "losses/segment/dice",
            ignored_pixels,
            images,
            "deeplabv3plus",
            DICE,
        ),
        ("easy pixels come first", "losses/segment/lovasz", easy_pixels_first, images, "deeplabv3plus", LOVASZ),
        (
            "the margin of CosFace is added",
            "losses/face/combined",
            ("value - ", "value + "),
            values,
            "arcface",
            COSFACE,
        ),
        ("short embeddings have the larger margin", "losses/face/adaface", angle, values, "arcface", ADAFACE),
        (
            "lengths deviate as a whole population",
            "losses/face/adaface",
            deviation,
            f"{MARGIN}adaface_is_that_of_its_authors",
            "arcface",
            ADAFACE,
        ),
        ("t_alpha and 1 - t_alpha change places", "losses/face/adaface", averages, updates, "arcface", AVERAGES),
        ("a skipped update moves the statistics of the loss", "trainer", skipped, updates, "", ()),
    ]
    return [
        Fault(framework, name, f"zoo/trainer/{framework}/{file}.py", *slip, killer, recipe, options)
        for name, file, slip, killer, recipe, options in rows
    ]


FAULTS = [
    *faults(
        "torch",
        label_alone=("batch.get(SOFT_LABEL, batch[LABEL.name])", "batch[LABEL.name]"),
        class_sum=("total if self.settings.sum_classes else total / classes", "total"),
        pixel_count=("if self.settings.class_weights is None:", "if True:"),
        sharp_pixels=("label_smoothing=smoothing", "label_smoothing=0.0"),
        easy_pixels=("self.settings.gamma * F.logsigmoid(-signed)", "self.settings.gamma * F.logsigmoid(signed)"),
        swapped_alpha=("alpha * losses, (1 - alpha) * losses", "(1 - alpha) * losses, alpha * losses"),
        ignored_pixels=("(logits.softmax(1) * valid[:, None])", "logits.softmax(1)"),
        easy_pixels_first=("descending=True", "descending=False"),
        deviation=("norms.std()", "norms.std(correction=0)"),
        averages=(
            "self.t_alpha * value + (1 - self.t_alpha) * average",
            "self.t_alpha * average + (1 - self.t_alpha) * value",
        ),
        skipped=("torch.where(output.consecutive_skips == 0, tensor, statistics[name])", "tensor"),
    ),
    *faults(
        "paddle",
        label_alone=("batch.get(SOFT_LABEL, batch[LABEL.name])", "batch[LABEL.name]"),
        class_sum=("total if self.settings.sum_classes else total / classes", "total"),
        pixel_count=("if self.weights is None:", "if True:"),
        sharp_pixels=("if self.settings.label_smoothing > 0:", "if False:"),
        easy_pixels=("self.settings.gamma * F.log_sigmoid(-signed)", "self.settings.gamma * F.log_sigmoid(signed)"),
        swapped_alpha=("alpha * losses, (1 - alpha) * losses", "(1 - alpha) * losses, alpha * losses"),
        ignored_pixels=("(F.softmax(logits, 1) * valid.unsqueeze(1).astype(logits.dtype))", "F.softmax(logits, 1)"),
        easy_pixels_first=("descending=True", "descending=False"),
        deviation=("norms.std()", "norms.std(unbiased=False)"),
        averages=(
            "self.t_alpha * value + (1 - self.t_alpha) * average",
            "self.t_alpha * average + (1 - self.t_alpha) * value",
        ),
        skipped=("paddle.where(output.consecutive_skips == 0, tensor, statistics[name])", "tensor"),
    ),
    *faults(
        "mindspore",
        label_alone=("SOFT_LABEL if SOFT_LABEL in fields else LABEL.name", "LABEL.name"),
        class_sum=("total if self.sum_classes else total / classes", "total"),
        pixel_count=("if self.class_weights is None:", "if True:"),
        sharp_pixels=("settings.label_smoothing > 0,", "False,"),
        easy_pixels=("self.gamma * log_sigmoid(-signed)", "self.gamma * log_sigmoid(signed)"),
        swapped_alpha=(
            "target * self.alpha + (1 - target) * (1 - self.alpha)",
            "target * (1 - self.alpha) + (1 - target) * self.alpha",
        ),
        ignored_pixels=("(ops.exp(log_softmax(logits)) * valid)", "ops.exp(log_softmax(logits))"),
        easy_pixels_first=("argsort_descending(errors - (1 - valid))", "argsort_descending(1 - valid - errors)"),
        deviation=("(norms.shape[0] - 1)", "norms.shape[0]"),
        averages=(
            "number(settings.t_alpha), number(1 - settings.t_alpha)",
            "number(1 - settings.t_alpha), number(settings.t_alpha)",
        ),
        skipped=("ops.select(output.consecutive_skips == 0, statistic, kept)", "statistic"),
    ),
]
