"""The model that a file holds and its options: as its tensors show them, as a user states them, and what they make."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np

from zoo.config import loader
from zoo.data.convert import convert as convert_value
from zoo.data.errors import UserError
from zoo.models import load_spec
from zoo.models.arcface import spec as arcface
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.resnet.spec import BLOCKS
from zoo.weights import faces, names

Tensors = Mapping[str, np.ndarray]
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
    """Return depth, width and non_local of a ResNet or TSM and, if it has a classifier, num_classes."""
    shapes = {name: array.shape for name, array in tensors.items()}
    depth, non_local = _resnet_depth(shapes), any(".nl." in name for name in shapes)
    return {"depth": depth, **infer_mobilenet(tensors), "non_local": non_local}


def infer_mobilenet(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return width and, with a classifier, num_classes of a TSM on MobileNetV2."""
    shapes = {name: array.shape for name, array in tensors.items()}
    has_head = any(name.startswith("fc.") for name in shapes)
    _require(shapes, "classifier", {"conv1.weight": 4, **({"fc.weight": 2} if has_head else {})})
    return {**({"num_classes": shapes["fc.weight"][0]} if has_head else {}), "width": shapes["conv1.weight"][0]}


def infer_segmenter(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the options of a DeepLabV3+ except those of NOT_IN_TENSORS.

    head_width and auxiliary are left out if they are the variant's default. For the variant mmseg, a missing auxiliary
    head is not inferred: it may have been lost by accident.
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
    """Return variant, depth, width, embedding and size of an ArcFace; num_classes if it has a class matrix."""
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


OPTIONS = {  # options of the model's Arch that a user may state
    "tsm": ("depth", "num_classes", "width", "non_local"),
    "tsm_mobilenet_v2": ("num_classes", "width", "shift_div", "shift_direction"),
    "resnet": ("depth", "num_classes", "width", "padding", "bn_eps"),
    "deeplabv3plus": (
        *("variant", "depth", "stem", "num_classes", "width", "head_width", "low_width", "aux_width", "auxiliary"),
        *NOT_IN_TENSORS["deeplabv3plus"],
    ),
    "arcface": ("variant", "depth", "num_classes", "width", "embedding", "size"),
}
INFER: dict[str, Callable[[Tensors], dict[str, Any]]] = {
    "tsm": infer_classifier,
    "tsm_mobilenet_v2": infer_mobilenet,
    "resnet": infer_classifier,
    "deeplabv3plus": infer_segmenter,
    "arcface": infer_face_model,
}
VIDEO_ORIGINS = ("mit", "mmaction2", "paddlevideo", "canonical")  # whose classifiers are TSM by default


def default_model(origin: str, tensors: Tensors, recorded: str | None = None) -> str:
    """Return the model that a file records to hold, or else the one that a file of this origin usually holds."""
    if recorded in OPTIONS:
        return recorded
    if names.is_mobilenet(tensors):
        return "tsm_mobilenet_v2"
    if names.detect_segmenter(tensors):
        return "deeplabv3plus"
    if faces.detect(tensors):
        return "arcface"
    if origin == "paddlevideo" and not any(name.startswith(("backbone.", "head.")) for name in tensors):
        return "resnet"  # its ImageNet weights have no prefixes
    return "tsm" if origin in VIDEO_ORIGINS else "resnet"


def user_options(overrides: Sequence[str], model: str) -> dict[str, Any]:
    """Parse `key=value` texts as options of a model, with values as in a recipe."""
    types, options = get_type_hints(load_spec(model).Arch), {}
    for key, entry in loader.overrides(overrides).items():
        if key not in OPTIONS[model]:
            raise UserError(f"-o {key}={entry.value}: for {model} give one of {', '.join(OPTIONS[model])}")
        try:
            options[key] = convert_value(entry.value, types[key])
        except ValueError as error:
            raise UserError(f"-o {key}={entry.value}: {error}") from None
    return options


def expected_shapes(model: str, options: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic of a model by canonical name."""
    options = dict(options)
    if model == "resnet" and options.pop("non_local"):
        raise UserError("a resnet has no non-local blocks; give --model tsm")
    spec = load_spec(model)
    is_backbone = "num_classes" not in options
    try:
        arch = spec.Arch(**{"num_classes": 2, **options})
    except ValueError as error:
        raise UserError(f"there is no such {model}: {error}; give other options with -o") from None
    return {name: shape for name, shape in spec.shapes(arch).items() if not (is_backbone and spec.is_head(name))}
