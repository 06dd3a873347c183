"""Key mapping from the state dicts of other projects, called origins, to the canonical names of ResNet and TSM.

    torchvision    canonical, plus a counter num_batches_tracked for each batch normalization
    mit            mit-han-lab/temporal-shift-module: wrappers add module., base_model., .net and .block
    mmaction2      open-mmlab/mmaction2's TSM: convolution and normalization share a module convN
    paddle_vision  paddle.vision.models: as torchvision, but _mean and _variance
    paddleclas     PaddleClas: blocks numbered across stages, convolutions from 0, normalization beside them
    paddlevideo    PaddleVideo's TSM: blocks called res2a to res5c, prefixes backbone. and head.
    mindspore      mindspore-ai/models: gamma, beta, moving_mean, moving_variance; the classifier is end_point
    mindcv         mindspore-lab/mindcv: as mindspore, but classifier and down_sample
    canonical      zoo/models/resnet/spec.py and zoo/models/tsm/spec.py

The key mapping of DeepLabV3+ is in segmentation.py, that of ArcFace in faces.py, that of MobileNetV2 in mobilenet.py;
layouts.py handles all differences other than names.
"""

import re
from collections.abc import Iterable
from re import Match

from zoo.data.errors import UserError
from zoo.weights import faces, mobilenet, segmentation
from zoo.weights.segmentation import Rule

COUNTER = "num_batches_tracked"  # PyTorch counts batches; no computation here depends on it
STAGES = {sum(counts): counts for counts in ((2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3))}
MINDSPORE = ("mindspore", "mindcv")


def conv_from_one(match: Match[str]) -> str:
    """Map conv0 to conv1: these projects number the layers of a block from 0."""
    return f"{match[1]}conv{int(match[2]) + 1}."


def norm_from_one(match: Match[str]) -> str:
    """Map the normalization beside conv0 to bn1."""
    return f"{match[1]}bn{int(match[2]) + 1}."


def paddlevideo_block(match: Match[str]) -> str:
    """Map res2a., res2b. to layer1.0., layer1.1. and, in deep models, res4b1. to layer3.1."""
    return f"layer{int(match[1]) - 1}.{match[3] or ord(match[2]) - ord('a')}."


PADDLE_NORM: tuple[Rule, ...] = ((r"\._mean$", ".running_mean"), (r"\._variance$", ".running_var"))
MINDSPORE_NORM: tuple[Rule, ...] = (
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
    (r"\.moving_mean$", ".running_mean"),
    (r"\.moving_variance$", ".running_var"),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "torchvision": mobilenet.TORCHVISION,  # of the ResNet, the names are canonical
    "mit": (
        (r"^(module\.)?(base_model\.)?", ""),
        (r"^new_fc\.", "fc."),  # with dropout 0 it is base_model.fc
        (r"\bnl\.(g|phi)\.0\.", r"nl.\1."),
        (r"\bnl\.W\.0\.", "nl.out."),
        (r"\bnl\.W\.1\.", "nl.bn."),
        *mobilenet.MIT,
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
        (r"^(blocks\.\d+\.)conv(\d)\.conv\.", conv_from_one),
        (r"^(blocks\.\d+\.)conv(\d)\.bn\.", norm_from_one),
    ),
    "paddlevideo": PADDLE_NORM
    + (
        (r"^(backbone|head)\.", ""),
        (r"^conv\._conv\.", "conv1."),
        (r"^conv\._batch_norm\.", "bn1."),
        (r"^res([2-5])([a-z])(\d*)\.", paddlevideo_block),
        (r"\bshort\._conv\.", "downsample.0."),
        (r"\bshort\._batch_norm\.", "downsample.1."),
        (r"^(layer\d\.\d+\.)conv(\d)\._conv\.", conv_from_one),
        (r"^(layer\d\.\d+\.)conv(\d)\._batch_norm\.", norm_from_one),
    ),
    "mindspore": MINDSPORE_NORM
    + (
        (r"\bdown_sample_layer\.", "downsample."),
        (r"\bbn(\d)d\.", r"bn\1."),  # in blocks of two convolutions
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
    "plsc": (),  # see faces.plsc_names
    "plsc2": PADDLE_NORM + ((r"\._weight$", ".weight"),),
    "canonical": (),
}
ORIGINS = tuple(RULES)


def detect(names: Iterable[str]) -> str:
    """Return the origin of a state dict with these names.

    Raises:
        UserError: The names are those of no known origin.
    """
    names = list(names)
    origin = segmentation.detect(names) or faces.detect(names)
    if origin:
        return origin
    last_parts = {name.rsplit(".", 1)[-1] for name in names}
    if "_mean" in last_parts:  # Paddle's BatchNorm
        if any("._batch_norm." in name for name in names):
            return "paddlevideo"
        if any(name.startswith("blocks.") for name in names):
            return "paddleclas"
        if "conv1.weight" in names:
            return "paddle_vision"
    elif "moving_mean" in last_parts:  # MindSpore's BatchNorm
        if any(name.startswith("end_point.") or ".down_sample_layer." in name for name in names):
            return "mindspore"
        if any(name.startswith("classifier.") or ".down_sample." in name for name in names):
            return "mindcv"
    elif any(name.startswith(("backbone.", "module.backbone.", "cls_head.")) for name in names):
        return "mmaction2"
    elif any(name.startswith(("module.", "base_model.", "new_fc.")) for name in names) or mobilenet.is_online(names):
        return "mit"
    elif "conv1.weight" in names or mobilenet.detect(names):
        return "canonical" if "conv1.weight" in names and COUNTER not in last_parts else "torchvision"
    shown = ", ".join(sorted(names)[:5])
    raise UserError(
        f"the names ({shown} ...) are of no known origin; convert a model of one of these: {', '.join(ORIGINS)}"
    )


def canonical_name(name: str, origin: str, blocks: int = 16) -> str:
    """Return the canonical name of a tensor; a name that no rule matches is returned as it is.

    Args:
        name: Key in the state dict of the origin.
        origin: One of ORIGINS.
        blocks: Number of residual blocks; it tells where a stage begins if the origin numbers blocks across stages.
    """
    if origin in ("mit", "mmaction2"):
        # the shift, the temporal pool and the non-local block of both are wrappers, each with a part in the path
        name = ".".join(part for part in name.split(".") if part not in ("net", "block"))
    if origin == "plsc":
        return faces.plsc_names(blocks).get(name, name)
    for pattern, replacement in RULES[origin]:
        name = re.sub(pattern, replacement, name)
    if origin == "paddleclas":
        return re.sub(r"^blocks\.(\d+)\.", lambda match: block_in_stage(match, blocks), name)
    return name


def block_in_stage(match: Match[str], blocks: int) -> str:
    """Map blocks.3. to layer2.0. in a model of 16 blocks; unchanged if no model has this number of blocks."""
    index = int(match[1])
    for layer, count in enumerate(STAGES.get(blocks, ()), 1):
        if index < count:
            return f"layer{layer}.{index}."
        index -= count
    return match[0]


def block_count(names: Iterable[str]) -> int:
    """Return the number of residual blocks if the names number them across stages, else 0."""
    names = list(names)
    numbers = [int(match[1]) for match in (re.match(r"blocks\.(\d+)\.", name) for name in names) if match]
    return max(numbers, default=-1) + 1 or faces.block_count(names)


def is_training_state(name: str, names: Iterable[str], origin: str) -> bool:
    """Return whether a tensor is a counter or optimizer state, which a training run saves beside the model.

    MindSpore's optimizers put a prefix before the name of the parameter (moments.conv1.weight) and give names without a
    dot to the rest (learning_rate, global_step).

    Args:
        name: Key in the state dict.
        names: All keys, in a container with fast lookup.
        origin: One of ORIGINS.
    """
    if origin in MINDSPORE:
        return "." not in name or name.split(".", 1)[1] in names
    return name.rsplit(".", 1)[-1] == COUNTER
