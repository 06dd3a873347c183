"""Options of a model's Arch, inferred from its canonical tensors. What the tensors do not show is left out."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.models.arcface import spec as arcface
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.resnet.spec import BLOCKS

Shapes = Mapping[str, tuple[int, ...]]
DEPTHS = ", ".join(f"ResNet-{depth} {counts}" for depth, counts in BLOCKS.items())
NOT_IN_TENSORS = {  # model -> options that change the computation in evaluation, but no tensor
    "tsm": ("shift_place", "shift_div", "shift_direction", "temporal_pool"),
    "tsm_mobilenet_v2": ("shift_div", "shift_direction"),
    "resnet": ("dilate", "padding", "bn_eps"),
    "deeplabv3plus": ("output_stride", "multi_grid", "rates", "align_corners"),
    "arcface": (),
}


def infer_classifier(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return depth, num_classes, width and non_local of a ResNet or TSM.

    Raises:
        UserError: The tensors are not those of a ResNet.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    depth = _resnet_depth(shapes)
    _require(shapes, "ResNet", {"conv1.weight": 4, "fc.weight": 2})
    return {
        "depth": depth,
        "num_classes": shapes["fc.weight"][0],
        "width": shapes["conv1.weight"][0],
        "non_local": any(".nl." in name for name in shapes),
    }


def infer_mobilenet(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return num_classes and width of a TSM on MobileNetV2.

    Raises:
        UserError: The tensors are not those of a MobileNetV2.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    _require(shapes, "MobileNetV2", {"conv1.weight": 4, "fc.weight": 2})
    return {"num_classes": shapes["fc.weight"][0], "width": shapes["conv1.weight"][0]}


def infer_segmenter(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the options of a DeepLabV3+ except those of NOT_IN_TENSORS.

    head_width and auxiliary are left out if they are the variant's default. For the variant mmseg, a missing auxiliary
    head is not inferred: it may have been lost by accident.

    Raises:
        UserError: The tensors are not those of a DeepLabV3+.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    prefix = "backbone."
    depth = _resnet_depth({name[len(prefix) :]: shape for name, shape in shapes.items() if name.startswith(prefix)})
    dimensions = {
        "backbone.conv1.weight": 4,
        "head.image_pool.conv.weight": 4,
        "head.low.conv.weight": 4,
        "head.classifier.weight": 4,
    }
    _require(shapes, "DeepLabV3+", dimensions)
    is_deep = "backbone.conv2.weight" in shapes
    options: dict[str, Any] = {
        "variant": "paddleseg" if "head.aspp.0.conv.bias" in shapes else "mmseg",
        "depth": depth,
        "stem": "deep" if is_deep else "plain",
        "num_classes": shapes["head.classifier.weight"][0],
        "width": shapes["backbone.conv1.weight"][0] * (2 if is_deep else 1),
    }
    default = deeplab.Arch(variant=options["variant"])
    if shapes["head.image_pool.conv.weight"][0] != default.head_channels:
        options["head_width"] = shapes["head.image_pool.conv.weight"][0]
    options["low_width"] = shapes["head.low.conv.weight"][0]
    if "aux.project.conv.weight" in shapes:
        options["aux_width"] = shapes["aux.project.conv.weight"][0]
        if not default.has_auxiliary:
            options["auxiliary"] = True
    return options


def infer_face_model(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return variant, depth, width, embedding and a matching size of an ArcFace; num_classes if it has a class matrix.

    Raises:
        UserError: The tensors are not those of an IResNet.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    blocks = _blocks_per_stage(shapes)
    depths = [depth for depth, counts in arcface.BLOCKS.items() if counts == blocks]
    if not depths:
        known = ", ".join(f"{depth} {counts}" for depth, counts in arcface.BLOCKS.items())
        raise UserError(f"layers of {blocks} blocks are not a supported IResNet; convert one of these: {known}")
    _require(shapes, "IResNet", {"conv1.weight": 4, "prelu.weight": 1, "fc.weight": 2})
    embedding, features = shapes["fc.weight"]
    width = shapes["conv1.weight"][0]
    options: dict[str, Any] = {
        "variant": "plsc" if shapes["prelu.weight"] == (1,) else "insightface",
        "depth": depths[0],
        "width": width,
        "embedding": embedding,
        "size": 16 * math.isqrt(features // (8 * width)),
    }
    if arcface.HEAD_WEIGHT in shapes:
        options["num_classes"] = shapes[arcface.HEAD_WEIGHT][0]
    return options


def _blocks_per_stage(shapes: Shapes) -> tuple[int, ...]:
    return tuple(len({name.split(".")[1] for name in shapes if name.startswith(f"layer{i}.")}) for i in (1, 2, 3, 4))


def _resnet_depth(shapes: Shapes) -> int:
    blocks = _blocks_per_stage(shapes)
    is_bottleneck = any(name.startswith("layer") and name.endswith(".conv3.weight") for name in shapes)
    depths = [depth for depth, counts in BLOCKS.items() if counts == blocks and (depth >= 50) == is_bottleneck]
    if not depths:
        raise UserError(f"layers of {blocks} blocks are not a supported ResNet; convert one of these: {DEPTHS}")
    return depths[0]


def _require(shapes: Shapes, model: str, dimensions: Mapping[str, int]) -> None:
    """Raise UserError unless each of these tensors has elements and its number of dimensions."""
    for name, count in dimensions.items():
        shape = shapes.get(name, ())
        if len(shape) != count or 0 in shape:
            raise UserError(
                f"there is no {name} with {count} dimensions, so this is not a complete {model}; "
                "give another --model or --origin"
            )
