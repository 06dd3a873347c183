"""Steps of a conversion beyond key mapping: the model and its options, differences that need a choice, metadata."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import numpy as np

from zoo.config import loader
from zoo.config.convert import convert as convert_value
from zoo.data.errors import UserError
from zoo.models import load_spec
from zoo.models.arcface import spec as arcface
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.resnet.spec import BLOCKS
from zoo.weights import faces, files, layouts, names

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


Tensors = Mapping[str, np.ndarray]
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
DEFAULT_SHIFT_DIV = 8  # of this zoo, and of PaddleVideo's models of 8 frames
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


def to_canonical(tensors: Tensors, origin: str, options: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the tensors by canonical name and in canonical layout, changed as the options need, and notes."""
    result, notes = layouts.to_canonical(tensors, origin), []
    if origin == "mindspore" and options.get("num_classes") != 1001 and len(result.get("fc.bias", ())) == 1001:
        result = layouts.without_spare_class(result)
        notes.append(
            "the last of 1001 classes, which no image of ImageNet has, is dropped; -o num_classes=1001 keeps it"
        )
    if origin == "plsc" and options.get("variant") == "insightface":
        result = faces.to_insightface(result)
    return result, notes


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


def reverse_shift(
    tensors: Tensors, depth: int, shift_div: int | None, keep_direction: bool
) -> tuple[Tensors, list[str]]:
    """Convert a TSM of PaddleVideo to the shift direction of this zoo, and return notes on its use.

    Args:
        shift_div: PaddleVideo's model shifts 1/shift_div of the channels each way; None for the default.
    """
    shift_div = DEFAULT_SHIFT_DIV if shift_div is None else shift_div
    widths = {
        tensor.shape[0]
        for name, tensor in tensors.items()
        if name == "bn1.weight" or name.endswith(".downsample.1.weight")
    }
    if shift_div < 2 or any(2 * width // shift_div != 2 * (width // shift_div) for width in widths):
        raise UserError(
            f"--shift-div {shift_div}: PaddleVideo's two folds would differ in size, which this zoo's shift "
            "does not support; give the number of frames that the model was trained with"
        )
    notes = [
        "PaddleVideo's shift has the other direction; the channels are reordered so that this zoo's shift computes the "
        "same"
    ]
    if keep_direction:
        notes = ["PaddleVideo's shift has the other direction: model.shift_direction=past is stored in the file"]
    if shift_div != DEFAULT_SHIFT_DIV:
        notes.append(f"model.shift_div={shift_div} is stored in the file; if a recipe has another, give it with -o")
    if depth > 50:
        notes.append(
            f"PaddleVideo's ResNet-{depth} shifts in every block, this zoo's in every second one: fine-tune these "
            "weights before using them"
        )
    return tensors if keep_direction else layouts.reverse_shift(tensors, shift_div), notes


def metadata(
    model: str,
    origin: str,
    options: Mapping[str, Any],
    data: Mapping[str, Any],
    notes: Sequence[str],
    path: str,
    paths: Sequence[str],
) -> dict[str, str]:
    """Return the metadata of a converted file.

    Args:
        options: All known options of the model, which a run uses, or compares with those of its recipe. The image size
            is left out: the shape of fc.weight determines it.
        data: Settings of the data section, likewise.
    """
    return {
        "origin": origin,
        "model": model,
        "arch": json.dumps({key: value for key, value in options.items() if key != "size"}),
        "file": os.path.basename(os.path.normpath(path)),
        "sha256": _digest(paths),
        **({"data": json.dumps(data)} if data else {}),
        **({"notes": json.dumps(notes)} if notes else {}),
    }


def _digest(paths: Sequence[str]) -> str:
    """Return the SHA-256 of a file, or that of the concatenated digests of several."""
    of_files = [files.sha256(path) for path in paths]
    return of_files[0] if len(of_files) == 1 else hashlib.sha256("".join(of_files).encode()).hexdigest()


def require_float32(tensors: Tensors) -> None:
    """Raise UserError for a tensor that is not float32; 16-bit floats have been widened already."""
    for name, array in tensors.items():
        if array.dtype != np.float32:
            raise UserError(f"{name} is {array.dtype}, but weights are float32 (or 16-bit floats); save it as float32")
