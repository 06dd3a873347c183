"""Key mapping from the state dicts of other projects, called origins, to the canonical names.

    torchvision    canonical, plus a counter num_batches_tracked for each batch normalization; NVIDIA's
                   DeepLearningExamples numbers the layers of ResNet from layers.0
    mit            mit-han-lab/temporal-shift-module: wrappers add module., base_model., .net and .block
    mmaction2      open-mmlab/mmaction2's TSM: convolution and normalization share a module convN
    paddle_vision  paddle.vision.models: as torchvision, but _mean and _variance
    paddleclas     PaddleClas: blocks numbered across stages, convolutions from 0, normalization beside them
    paddlevideo    PaddleVideo's TSM: blocks called res2a to res5c, prefixes backbone. and head.
    mindspore      mindspore-ai/models: gamma, beta, moving_mean, moving_variance; the classifier is end_point
    mindcv         mindspore-lab/mindcv: as mindspore, but classifier and down_sample
    mmseg          open-mmlab/mmsegmentation's DeepLabV3+ on a ResNet, also with the plain stem ("b" models)
    paddleseg      PaddleSeg's DeepLabV3P on a ResNet-vd
    canonical      zoo/models/<model>/spec.py

The rules of DeepLabV3+ hold for backbones without the prefix `backbone.`, too: ImageNet weights are such. MobileNetV2
nests convolution and normalization in torchvision (features.2.conv.0.0, features.2.conv.0.1) and has one list of layers
at mit (features.2.conv.0, features.2.conv.1; ReLU6 counts too). Faces are in faces.py; layouts.py handles all
differences other than names.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from re import Match
from typing import Any

from zoo.data.errors import UserError
from zoo.weights import faces

Rule = tuple[str, str | Callable[[Match[str]], str]]  # pattern and replacement of re.sub
LAYERS = ("expand", "bn1", "depthwise", "bn2", "project", "bn3")
EXPANDED = {  # layer in its block -> canonical name
    "torchvision": dict(zip(("0.0", "0.1", "1.0", "1.1", "2", "3"), LAYERS)),
    "mit": dict(zip(("0", "1", "3", "4", "6", "7"), LAYERS)),
}
FIRST = {  # the same for the first block, which has no expansion
    "torchvision": dict(zip(("0.0", "0.1", "1", "2"), LAYERS[2:])),
    "mit": dict(zip(("0", "1", "3", "4"), LAYERS[2:])),
}
COUNTER = "num_batches_tracked"  # PyTorch counts batches; no computation here depends on it
STAGES = {sum(counts): counts for counts in ((2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3))}
MINDSPORE = ("mindspore", "mindcv")
NORMS = ("bn", "_batch_norm")


def stem_layer(match: Match[str]) -> str:
    """Map stem.3. to conv2., stem.4. to bn2.: the stem is convolution, normalization and ReLU, three times."""
    index = int(match[1])
    return f"{'bn' if index % 3 else 'conv'}{index // 3 + 1}."


def vd_layer(match: Match[str]) -> str:
    """Map bb_0_1.conv2. to layer1.1.conv3. or .bn3., and bb_0_0.short. to layer1.0.downsample."""
    block, is_norm = f"layer{int(match[1]) + 1}.{match[2]}.", match[4] in NORMS
    if match[3] == "short":
        return f"{block}downsample.{int(is_norm)}."
    return f"{block}{'bn' if is_norm else 'conv'}{int(match[3][-1]) + 1}."


SEPARABLE_CONV: tuple[Rule, ...] = (
    (r"\bdepthwise_conv\.", "depthwise."),
    (r"\bp(oin|ion)twise_conv\.", "pointwise."),  # PaddleSeg spells it piontwise
)
MMSEG: tuple[Rule, ...] = (
    (r"^module\.", ""),
    (r"\bstem\.([0-7])\.", stem_layer),
    (r"^decode_head\.image_pool\.1\.", "head.image_pool."),
    (r"^decode_head\.aspp_modules\.", "head.aspp."),
    (r"^decode_head\.bottleneck\.", "head.bottleneck."),
    (r"^decode_head\.c1_bottleneck\.", "head.low."),
    (r"^decode_head\.sep_bottleneck\.", "head.fuse."),
    (r"^decode_head\.conv_seg\.", "head.classifier."),
    (r"^auxiliary_head\.convs\.0\.", "aux.project."),
    (r"^auxiliary_head\.conv_seg\.", "aux.classifier."),
) + SEPARABLE_CONV
PADDLESEG: tuple[Rule, ...] = (
    (r"\bconv1_([123])\._conv\.", r"conv\1."),
    (r"\bconv1_([123])\._batch_norm\.", r"bn\1."),
    (r"\bbb_([0-3])_(\d+)\.(conv[0-2]|short)\.(_conv|_batch_norm)\.", vd_layer),
    (r"^head\.aspp\.global_avg_pool\.1\.", "head.image_pool."),
    (r"^head\.aspp\.aspp_blocks\.", "head.aspp."),
    (r"^head\.aspp\.conv_bn_relu\.", "head.bottleneck."),
    (r"^head\.decoder\.conv_bn_relu1\.", "head.low."),
    (r"^head\.decoder\.conv_bn_relu2\.", "head.fuse.0."),
    (r"^head\.decoder\.conv_bn_relu3\.", "head.fuse.1."),
    (r"^head\.decoder\.conv\.", "head.classifier."),
    (r"\._conv\.", ".conv."),
    (r"\._batch_norm\.", ".bn."),
) + SEPARABLE_CONV


def without_wrappers(tensors: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return tensors by their names within a model that was wrapped when it was saved, and what is left out.

    DataParallel adds `module.` to all names, modules of Lightning the name of an attribute; torch.compile, FSDP and
    checkpointing add a part to the names of what they wrap, averages of weights a counter.
    """
    left_out = [name for name in tensors if name == AVERAGES_COUNTER]
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        left_out += [part for part in parts if part in WRAPPER_PARTS and part not in left_out]
        if name != AVERAGES_COUNTER:
            found[".".join(part for part in parts if part not in WRAPPER_PARTS)] = tensor
    first, last = (edge(found, default="").split(".")[:-1] for edge in (min, max))
    # base_model shows that it is mit-han-lab's
    common = takewhile(lambda parts: parts[0] == parts[1] != "base_model", zip(first, last))
    prefix = "".join(f"{part}." for part, _ in common)
    left_out = [prefix, *left_out] if prefix else left_out
    return {name.removeprefix(prefix): tensor for name, tensor in found.items()}, ", ".join(left_out)


def detect_segmenter(names: Iterable[str]) -> str | None:
    """Return the origin of a state dict with these names; None for other models."""
    names = list(names)
    if any(name.startswith(("decode_head.", "module.decode_head.")) for name in names):
        return "mmseg"
    if any(name.startswith("head.aspp.") for name in names):
        return "paddleseg" if any("._batch_norm." in name for name in names) else "canonical"
    return None


def _layer_of(first: Mapping[str, str], expanded: Mapping[str, str]) -> Callable[[Match[str]], str]:
    """Return the replacement of features.2.conv.0.0 by blocks.1.expand; a layer that no table has stays."""

    def replace(match: Match[str]) -> str:
        number = int(match[1])
        layer = (first if number == 1 else expanded).get(match[2])
        return f"blocks.{number - 1}.{layer}." if layer else match[0]

    return replace


def _mobilenet_rules(origin: str) -> tuple[Rule, ...]:
    return (
        (r"^features\.(\d+)\.conv\.(\d+(?:\.\d+)?)\.(?=[a-z])", _layer_of(FIRST[origin], EXPANDED[origin])),
        (r"^features\.0\.0\.", "conv1."),
        (r"^features\.0\.1\.", "bn1."),
        (r"^features\.18\.0\.", "conv2."),
        (r"^features\.18\.1\.", "bn2."),
        (r"^classifier\.(1\.)?", "fc."),
    )


MOBILENET_TORCHVISION, MOBILENET_MIT = _mobilenet_rules("torchvision"), _mobilenet_rules("mit")


def is_online(names: Iterable[str]) -> bool:
    """Return whether a state dict is that of mit-han-lab's online_demo: its layers, without the wrappers of its TSN."""
    return "features.1.conv.1.running_mean" in set(names)  # torchvision's layers are nested


def is_mobilenet(names: Iterable[str]) -> bool:
    """Return whether a state dict with these names is one of MobileNetV2, of a known origin or canonical."""
    return any(re.search(r"\bfeatures\.17\.conv\.|^blocks\.16\.project\.", name) for name in names)


def from_one(match: Match[str]) -> str:
    """Map conv0 to conv1, and the normalization beside it to bn1: these projects number a block's layers from 0."""
    return f"{match[1]}{'bn' if match[3] in NORMS else 'conv'}{int(match[2]) + 1}."


def shortcut(match: Match[str]) -> str:
    """Map the convolution of a shortcut to downsample.0, and its normalization to downsample.1."""
    return f"downsample.{int(match[1] in NORMS)}."


def nvidia_layer(match: Match[str]) -> str:
    """Map layers.0. to layer1."""
    return f"layer{int(match[1]) + 1}."


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
    "torchvision": ((r"^layers\.([0-3])\.", nvidia_layer), *MOBILENET_TORCHVISION),  # ResNet's own are canonical
    "mit": (
        (r"^(module\.)?(base_model\.)?", ""),
        (r"^new_fc\.", "fc."),  # with dropout 0 it is base_model.fc
        (r"\bnl\.(g|phi)\.0\.", r"nl.\1."),
        (r"\bnl\.W\.0\.", "nl.out."),
        (r"\bnl\.W\.1\.", "nl.bn."),
        *MOBILENET_MIT,
    ),
    "mmaction2": (
        (r"^(module\.)?(backbone\.)?", ""),
        (r"^cls_head\.fc_cls\.", "fc."),
        (r"\bnon_local_block\.(g|theta|phi)\.(0\.)?conv\.", r"nl.\1."),
        (r"\bnon_local_block\.conv_out\.conv\.", "nl.out."),
        (r"\bnon_local_block\.conv_out\.bn\.", "nl.bn."),
        (r"\bdownsample\.(conv|bn)\.", shortcut),
        (r"\bconv(\d)\.(conv|bn)\.", r"\2\1."),
    ),
    "paddle_vision": PADDLE_NORM,
    "paddleclas": PADDLE_NORM
    + (
        (r"^stem\.0\.(conv|bn)\.", r"\g<1>1."),
        (r"\bshort\.(conv|bn)\.", shortcut),
        (r"^(blocks\.\d+\.)conv(\d)\.(conv|bn)\.", from_one),
    ),
    "paddlevideo": PADDLE_NORM
    + (
        (r"^(backbone|head)\.", ""),
        (r"^conv\._conv\.", "conv1."),
        (r"^conv\._batch_norm\.", "bn1."),
        (r"^res([2-5])([a-z])(\d*)\.", paddlevideo_block),
        (r"\bshort\.(_conv|_batch_norm)\.", shortcut),
        (r"^(layer\d\.\d+\.)conv(\d)\.(_conv|_batch_norm)\.", from_one),
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
    "mmseg": MMSEG,
    "paddleseg": PADDLE_NORM + PADDLESEG,
    "insightface": faces.INSIGHTFACE,
    "plsc": (),  # see faces.plsc_names
    "plsc2": PADDLE_NORM + ((r"\._weight$", ".weight"),),
    "canonical": (),
}
WRAPPER_PARTS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
AVERAGES_COUNTER = "n_averaged"  # of torch.optim.swa_utils
ORIGINS = tuple(RULES)


def detect(names: Iterable[str]) -> str:
    """Return the origin of a state dict with these names."""
    names = list(names)
    origin = detect_segmenter(names) or faces.detect(names)
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
    elif any(name.startswith(("module.", "base_model.", "new_fc.")) for name in names) or is_online(names):
        return "mit"
    elif "conv1.weight" in names or is_mobilenet(names):
        return "canonical" if "conv1.weight" in names and COUNTER not in last_parts else "torchvision"
    shown = ", ".join(sorted(names)[:5])
    raise UserError(
        f"the names ({shown} ...) are of no known origin; convert a model of one of these: {', '.join(ORIGINS)}"
    )


def canonical_name(name: str, origin: str, blocks: int = 16) -> str:
    """Return the canonical name of a tensor; a name that no rule matches is returned as it is.

    Args:
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
        names: All keys, in a container with fast lookup.
    """
    if origin in MINDSPORE:
        return "." not in name or name.split(".", 1)[1] in names
    return name.rsplit(".", 1)[-1] == COUNTER
