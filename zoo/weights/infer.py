"""What canonical tensors say about the net they fill: the options of its Arch. What no tensor shows is not guessed."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.errors import UserError
from zoo.models.arcface import spec as arcface
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.resnet.spec import BLOCKS

Shapes = Mapping[str, tuple[int, ...]]
DEPTHS = ", ".join(f"ResNet-{depth} {counts}" for depth, counts in BLOCKS.items())
UNSEEN = ("output_stride", "multi_grid", "rates", "align_corners")  # of DeepLabV3+: other arithmetic, the same tensors


def classifier(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of a ResNet or a TSM: depth, classes, width, non-local blocks. Raises UserError."""
    shapes = {name: array.shape for name, array in tensors.items()}
    depth = _depth(shapes)
    _need(shapes, "ResNet", {"conv1.weight": 4, "fc.weight": 2})
    return {
        "depth": depth,
        "num_classes": shapes["fc.weight"][0],
        "width": shapes["conv1.weight"][0],
        "non_local": any(".nl." in name for name in shapes),
    }


def segmenter(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of a DeepLabV3+: everything but UNSEEN. Widths and heads are left out where they are the variant's own.

    Whether there is an auxiliary head is not inferred for mmseg: lacking tensors must not pass for another net.
    Raises UserError.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    depth = _depth({name[len("backbone.") :]: shape for name, shape in shapes.items() if name.startswith("backbone.")})
    _need(
        shapes,
        "DeepLabV3+",
        {
            "backbone.conv1.weight": 4,
            "head.image_pool.conv.weight": 4,
            "head.low.conv.weight": 4,
            "head.classifier.weight": 4,
        },
    )
    is_deep = "backbone.conv2.weight" in shapes
    found: dict[str, Any] = {
        "variant": "paddleseg" if "head.aspp.0.conv.bias" in shapes else "mmseg",
        "depth": depth,
        "stem": "deep" if is_deep else "plain",
        "num_classes": shapes["head.classifier.weight"][0],
        "width": shapes["backbone.conv1.weight"][0] * (2 if is_deep else 1),
    }
    usual = deeplab.Arch(variant=found["variant"])
    if shapes["head.image_pool.conv.weight"][0] != usual.head_channels:
        found["head_width"] = shapes["head.image_pool.conv.weight"][0]
    found["low_width"] = shapes["head.low.conv.weight"][0]
    if "aux.project.conv.weight" in shapes:
        found["aux_width"] = shapes["aux.project.conv.weight"][0]
        if not usual.has_auxiliary:
            found["auxiliary"] = True
    return found


def embedder(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Of an ArcFace: variant, depth, widths, a size of pictures that fits, and classes if there is a class matrix.

    Raises UserError.
    """
    shapes = {name: array.shape for name, array in tensors.items()}
    blocks = _blocks(shapes)
    depths = [depth for depth, counts in arcface.BLOCKS.items() if counts == blocks]
    if not depths:
        raise UserError(
            f"layers of {blocks} blocks are no IResNet known here; known are: "
            + ", ".join(f"{depth} {counts}" for depth, counts in arcface.BLOCKS.items())
        )
    _need(shapes, "IResNet", {"conv1.weight": 4, "prelu.weight": 1, "fc.weight": 2})
    embedding, features = shapes["fc.weight"]
    width = shapes["conv1.weight"][0]
    found = {
        "variant": "plsc" if shapes["prelu.weight"] == (1,) else "insightface",
        "depth": depths[0],
        "width": width,
        "embedding": embedding,
        "size": 16 * math.isqrt(features // (8 * width)),
    }
    if arcface.HEAD in shapes:
        found["num_classes"] = shapes[arcface.HEAD][0]
    return found


def _blocks(shapes: Shapes) -> tuple[int, ...]:
    """Of layer1..layer4."""
    return tuple(len({name.split(".")[1] for name in shapes if name.startswith(f"layer{i}.")}) for i in (1, 2, 3, 4))


def _depth(shapes: Shapes) -> int:
    """Of the ResNet whose layers these are."""
    blocks = _blocks(shapes)
    bottleneck = any(name.startswith("layer") and name.endswith(".conv3.weight") for name in shapes)
    depths = [depth for depth, counts in BLOCKS.items() if counts == blocks and (depth >= 50) == bottleneck]
    if not depths:
        raise UserError(f"layers of {blocks} blocks are no ResNet known here; known are: {DEPTHS}")
    return depths[0]


def _need(shapes: Shapes, net: str, dimensions: Mapping[str, int]) -> None:
    for name, count in dimensions.items():
        if len(shapes.get(name, ())) != count:
            raise UserError(f"there is no {name} of {count} dimensions, so this is no whole {net}")
