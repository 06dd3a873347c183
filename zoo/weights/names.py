"""Names of tensors in other projects, and the way to the canonical names. Those of ResNet and TSM:

    torchvision    canonical already, with a counter num_batches_tracked for each batch normalisation
    mit            mit-han-lab/temporal-shift-module: wrappers add module., base_model., .net and .block
    mmaction2      open-mmlab/mmaction2's TSM: convolution and normalisation share a module convN
    paddle_vision  paddle.vision.models: torchvision's, but _mean and _variance
    paddleclas     PaddleClas: blocks numbered through, convolutions from 0, normalisation beside them
    paddlevideo    PaddleVideo's TSM: blocks called res2a to res5c; backbone. and head. in front
    mindspore      mindspore-ai/models: gamma, beta, moving_mean, moving_variance; the classifier is end_point
    mindcv         mindspore-lab/mindcv: the same, but classifier and down_sample
    canonical      zoo/models/resnet/spec.py and zoo/models/tsm/spec.py

Those of DeepLabV3+ are in segmentation.py, those of ArcFace in faces.py; what differs beside the names, in layouts.py.
"""

import re
from collections.abc import Iterable
from re import Match

from data.errors import UserError
from zoo.weights import faces, segmentation

COUNTER = "num_batches_tracked"  # torch counts batches; nothing here depends on the count
STAGES = {sum(counts): counts for counts in ((2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3))}
MINDSPORE = ("mindspore", "mindcv")


def one_up(match: Match) -> str:
    """conv0 -> conv1: these projects count a block's layers from 0."""
    return f"{match[1]}conv{int(match[2]) + 1}."


def norm_one_up(match: Match) -> str:
    return f"{match[1]}bn{int(match[2]) + 1}."


def paddlevideo_block(match: Match) -> str:
    """res2a., res2b. -> layer1.0., layer1.1.; the deep nets' third stage goes on as res4b1., res4b2. after res4a."""
    return f"layer{int(match[1]) - 1}.{match[3] or ord(match[2]) - ord('a')}."


PADDLE_NORM = ((r"\._mean$", ".running_mean"), (r"\._variance$", ".running_var"))
MINDSPORE_NORM = (
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
    (r"\.moving_mean$", ".running_mean"),
    (r"\.moving_variance$", ".running_var"),
)
RULES = {
    "torchvision": (),
    "mit": (
        (r"^(module\.)?(base_model\.)?", ""),
        (r"^new_fc\.", "fc."),  # with a dropout of 0 it is base_model.fc
        (r"\bnl\.(g|phi)\.0\.", r"nl.\1."),
        (r"\bnl\.W\.0\.", "nl.out."),
        (r"\bnl\.W\.1\.", "nl.bn."),
    ),
    "mmaction2": (
        (r"^(module\.)?(backbone\.)?", ""),
        (r"^cls_head\.fc_cls\.", "fc."),
        (r"\bnon_local_block\.(g|theta|phi)\.(0\.)?conv\.", r"nl.\1."),
        (r"\bnon_local_block\.conv_out\.conv\.", "nl.out."),
        (r"\bnon_local_block\.conv_out\.bn\.", "nl.bn."),
        (r"\bdownsample\.conv\.", "downsample.0."),
        (r"\bdownsample\.bn\.", "downsample.1."),
        (r"\bconv(\d)\.conv\.", r"conv\1."),
        (r"\bconv(\d)\.bn\.", r"bn\1."),
    ),
    "paddle_vision": PADDLE_NORM,
    "paddleclas": PADDLE_NORM
    + (
        (r"^stem\.0\.conv\.", "conv1."),
        (r"^stem\.0\.bn\.", "bn1."),
        (r"\bshort\.conv\.", "downsample.0."),
        (r"\bshort\.bn\.", "downsample.1."),
        (r"^(blocks\.\d+\.)conv(\d)\.conv\.", one_up),
        (r"^(blocks\.\d+\.)conv(\d)\.bn\.", norm_one_up),
    ),
    "paddlevideo": PADDLE_NORM
    + (
        (r"^(backbone|head)\.", ""),
        (r"^conv\._conv\.", "conv1."),
        (r"^conv\._batch_norm\.", "bn1."),
        (r"^res([2-5])([a-z])(\d*)\.", paddlevideo_block),
        (r"\bshort\._conv\.", "downsample.0."),
        (r"\bshort\._batch_norm\.", "downsample.1."),
        (r"^(layer\d\.\d+\.)conv(\d)\._conv\.", one_up),
        (r"^(layer\d\.\d+\.)conv(\d)\._batch_norm\.", norm_one_up),
    ),
    "mindspore": MINDSPORE_NORM
    + (
        (r"\bdown_sample_layer\.", "downsample."),
        (r"\bbn(\d)d\.", r"bn\1."),  # so called in blocks of two convolutions
        (r"^end_point\.", "fc."),
    ),
    "mindcv": MINDSPORE_NORM
    + (
        (r"\bdown_sample\.", "downsample."),
        (r"^classifier\.", "fc."),
    ),
    "mmseg": segmentation.MMSEG,
    "paddleseg": PADDLE_NORM + segmentation.PADDLESEG,
    "insightface": faces.INSIGHTFACE,
    "plsc": (),  # all in faces.plsc_names
    "plsc2": PADDLE_NORM + ((r"\._weight$", ".weight"),),
    "canonical": (),
}
ORIGINS = tuple(RULES)


def detect(names: Iterable[str]) -> str:
    """Which project wrote these names. Raises UserError if none of those known here did."""
    names = list(names)
    found = segmentation.detect(names) or faces.detect(names)
    if found:
        return found
    norms = {name.rsplit(".", 1)[-1] for name in names}
    if "_mean" in norms:  # the names of Paddle's BatchNorm
        if any("._batch_norm." in name for name in names):
            return "paddlevideo"
        if any(name.startswith("blocks.") for name in names):
            return "paddleclas"
        if "conv1.weight" in names:
            return "paddle_vision"
    elif "moving_mean" in norms:  # and of MindSpore's
        if any(name.startswith("end_point.") or ".down_sample_layer." in name for name in names):
            return "mindspore"
        if any(name.startswith("classifier.") or ".down_sample." in name for name in names):
            return "mindcv"
    elif any(name.startswith(("backbone.", "module.backbone.", "cls_head.")) for name in names):
        return "mmaction2"
    elif any(name.startswith(("module.", "base_model.", "new_fc.")) for name in names):
        return "mit"
    elif "conv1.weight" in names:
        return "torchvision" if COUNTER in norms else "canonical"
    shown = ", ".join(sorted(names)[:5])
    raise UserError(f"the names ({shown} ...) are of no known origin; known are: {', '.join(ORIGINS)}")


def canonical_name(name: str, origin: str, blocks: int = 16) -> str:
    """The canonical name of a tensor; a name that no rule knows comes back as it is.

    `blocks`, how many the net has, tells where a stage begins for projects that number them through.
    """
    if origin in ("mit", "mmaction2"):
        # the shift, the temporal pool and the non-local block of both wrap a module: a step in the path
        name = ".".join(part for part in name.split(".") if part not in ("net", "block"))
    if origin == "plsc":
        return faces.plsc_names(blocks).get(name, name)
    for pattern, replacement in RULES[origin]:
        name = re.sub(pattern, replacement, name)
    return re.sub(r"^blocks\.(\d+)\.", lambda match: staged(match, blocks), name) if origin == "paddleclas" else name


def staged(match: Match, blocks: int) -> str:
    """blocks.3. -> layer2.0. in a net of 16 blocks; unchanged if there is no net of so many."""
    i = int(match[1])
    for layer, count in enumerate(STAGES.get(blocks, ()), 1):
        if i < count:
            return f"layer{layer}.{i}."
        i -= count
    return match[0]


def block_count(names: Iterable[str]) -> int:
    """How many blocks the layers numbered through in these names make: 0 if none are."""
    names = list(names)
    numbers: list[int] = [int(found[1]) for found in (re.match(r"blocks\.(\d+)\.", name) for name in names) if found]
    return max(numbers, default=-1) + 1 or faces.block_count(names)


def is_state(name: str, names: Iterable[str], origin: str) -> bool:
    """Whether a name belongs to the counters and the optimiser that a training run saves beside its net.

    MindSpore's optimisers put a prefix before the name of the tensor they follow (moments.conv1.weight) and have
    plain words for the rest (learning_rate, global_step). `names` should be quick to search.
    """
    if origin in MINDSPORE:
        return "." not in name or name.split(".", 1)[1] in names
    return name.rsplit(".", 1)[-1] == COUNTER
