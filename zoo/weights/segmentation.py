"""Key mapping of DeepLabV3+ from other projects to the canonical names.

    mmseg          open-mmlab/mmsegmentation's DeepLabV3+ on a ResNet, also with the plain stem ("b" models)
    paddleseg      PaddleSeg's DeepLabV3P on a ResNet-vd
    canonical      zoo/models/deeplabv3plus/spec.py

Layouts do not differ. The rules hold for backbones without the prefix `backbone.`, too: ImageNet weights are such.
"""

from collections.abc import Callable, Iterable
from re import Match

Rule = tuple[str, str | Callable[[Match[str]], str]]  # pattern and replacement of re.sub


def stem_layer(match: Match[str]) -> str:
    """Map stem.3. to conv2., stem.4. to bn2.: the stem is convolution, normalization and ReLU, three times."""
    index = int(match[1])
    return f"{'bn' if index % 3 else 'conv'}{index // 3 + 1}."


def vd_layer(match: Match[str]) -> str:
    """Map bb_0_1.conv2. to layer1.1.conv3. or .bn3., and bb_0_0.short. to layer1.0.downsample."""
    block = f"layer{int(match[1]) + 1}.{match[2]}."
    is_norm = match[4] == "_batch_norm"
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


def detect(names: Iterable[str]) -> str | None:
    """Return the origin of a state dict with these names; None for other models."""
    names = list(names)
    if any(name.startswith(("decode_head.", "module.decode_head.")) for name in names):
        return "mmseg"
    if any(name.startswith("head.aspp.") for name in names):
        return "paddleseg" if any("._batch_norm." in name for name in names) else "canonical"
    return None
