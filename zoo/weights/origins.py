"""Differences between models of other projects that their tensors do not show, and notes on what a run needs."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from zoo.weights.architectures import NOT_IN_TENSORS
from zoo.weights.layouts import EPS, MINDSPORE_EPS
from zoo.weights.names import is_online

ANTIALIAS = {  # whether the project resizes by Pillow's antialiased filter, and not by OpenCV's
    "tsm": {"mit": True, "mmaction2": False, "paddlevideo": True},
    "tsm_mobilenet_v2": {"mit": True, "torchvision": True},
    "resnet": {"torchvision": True, "paddleclas": False, "mindspore": False, "mindcv": False},
}
PADDING = {"mindcv": "same_pool", "mindspore": "same"}  # mindspore-ai/models: of 50 layers or more
HALF = [0.5, 0.5, 0.5]
SHIFT_WRAPPERS = {"block": r"\blayer1\.0\.net\.", "blockres": r"\bconv1\.(conv\.)?net\."}
WRAPPED = ("module.", "base_model.", "new_fc.", "backbone.", "cls_head.")
SAME_PADDING = {  # origin -> what its ResNet does, and the effect measured on recorded logits
    "mindcv": "pads the stem's max pooling at the right and at the bottom first (logits 0.15 to 0.18 of the largest "
    "apart from those with padding on all sides)",
    "mindspore": "pads convolutions and max pooling of stride 2 at the right and at the bottom first (logits 0.26 of "
    "the largest apart from those with padding on all sides)",
}


def architecture(
    model: str, origin: str, names: Iterable[str], depth: int, recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a model's Arch that follow from its origin.

    Args:
        recorded: Options that the file itself records, if it is one of this zoo.
    """
    if origin == "canonical":
        return {key: recorded[key] for key in NOT_IN_TENSORS[model] if key in recorded}
    if model == "tsm" and origin in ("mit", "mmaction2"):
        return _shift_options(list(names))
    if model == "tsm_mobilenet_v2" and origin == "mit" and is_online(names):
        return {"shift_direction": "causal"}
    if model == "resnet" and origin == "mindcv":
        return {"padding": PADDING[origin]}
    if model == "resnet" and origin == "mindspore" and depth >= 50:
        return {"padding": PADDING[origin], "bn_eps": MINDSPORE_EPS}
    return {}


def epsilon(origin: str, depth: int, recorded: Mapping[str, Any]) -> float:
    """Return the epsilon of all batch normalizations of a ResNet; see layouts.py for mindspore-ai's models of two."""
    if origin == "canonical":
        return float(recorded.get("bn_eps", EPS))
    return MINDSPORE_EPS if origin == "mindspore" and depth >= 50 else EPS


def data_settings(model: str, origin: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the data section that repeat the preprocessing of the model's training, with their values."""
    if origin in ANTIALIAS.get(model, {}):
        antialias = ANTIALIAS[model][origin]
        return {"antialias": antialias, **({"reduce": False} if model == "resnet" and not antialias else {})}
    if origin == "paddleseg":
        return {"mean": HALF, "std": HALF}
    if origin in ("insightface", "plsc", "plsc2"):
        return {"normalisation": options["variant"]}
    return {}


def _shift_options(names: list[str]) -> dict[str, Any]:
    """Return place of the shift and temporal pool, whose wrappers are parts of the names; {} without any wrapper."""
    places = [place for place, pattern in SHIFT_WRAPPERS.items() if any(re.search(pattern, name) for name in names)]
    if not places and not any(name.startswith(WRAPPED) for name in names):
        return {}
    has_pool = any(re.search(r"\blayer2\.net\.", name) for name in names)
    return {"shift_place": places[0] if places else "none", "temporal_pool": has_pool}


def notes(
    model: str, origin: str, options: Mapping[str, Any], data: Mapping[str, Any], has_head: bool, target: str
) -> list[str]:
    """Return notes for the user on a converted model.

    Args:
        data: Settings of the data section that repeat its preprocessing.
    """
    found = _needs(model, options, data, has_head, origin)
    if model == "tsm":
        found += _video_limits(origin, options)
    return found + _padding_limits(model, origin, options, target)


def _needs(model: str, options: Mapping[str, Any], data: Mapping[str, Any], has_head: bool, origin: str) -> list[str]:
    found = []
    unknown = [key for key in NOT_IN_TENSORS[model] if model == "deeplabv3plus" and key not in options]
    if unknown:
        found.append(
            f"the tensors do not show {', '.join(unknown)}: the recipe must have them as the model was trained; with "
            "-o KEY=VALUE they are stored in the file, and a run uses them"
        )
    if not has_head:
        found.append("no classifier: zoo finetune initializes one; zoo train does with -o fresh_head=true")
    if "antialias" in data:
        library, subject = "Pillow" if data["antialias"] else "OpenCV", "frames" if model == "tsm" else "images"
        option = " and ".join(f"data.{key}={json.dumps(value)}" for key, value in data.items())
        found.append(f"{origin} trains on {subject} resized by {library}: the recipe should have {option}")
    if origin == "paddleseg":
        found.append(
            "PaddleSeg's models expect pixels with another mean and standard deviation than ImageNet's: a run uses "
            "data.mean=[0.5,0.5,0.5] and data.std=[0.5,0.5,0.5] unless its recipe sets others"
        )
    if data.get("normalisation") == "plsc":
        found.append(
            "PLSC's models expect pixels as (x - 127.5) / 128: train and predict with -o data.normalisation=plsc, or "
            "convert with -o variant=insightface, which moves the difference into the weights"
        )
    return found


def _video_limits(origin: str, options: Mapping[str, Any]) -> list[str]:
    found = []
    if options.get("shift_place") == "none":
        found.append("no layer has a temporal shift, as in TSN: model.shift_place=none is stored in the file")
    if not options["non_local"]:
        return found
    if origin in ("mit", "mmaction2") and options.get("temporal_pool"):
        found.append(
            "NOT EQUAL: with non-local blocks and temporal pooling, the attention of this upstream spans the frames "
            "of two neighboring clips of a batch, because its number of frames is that before the pooling; here it "
            "spans one clip. The logits differ (by 0.016 of the largest, measured with mit-han-lab's model), and no "
            "option makes them equal"
        )
    if origin == "mit":
        found.append(
            "with model.partial_bn=true, this zoo trains the scale and shift of the non-local blocks' normalizations; "
            "upstream leaves them out of its optimizer, so there they stay as they are"
        )
    if origin == "mmaction2":
        found.append("mmaction2's dot-product blocks have the same names; only embedded-Gaussian ones compute the same")
    return found


def _padding_limits(model: str, origin: str, options: Mapping[str, Any], target: str) -> list[str]:
    padding = options.get("padding", "symmetric")
    other = target if target != "canonical" else "a tsm" if model == "tsm" else f"model.padding={padding}"
    if origin == "mindspore" and options["depth"] < 50:
        return [
            "the blocks of this model have the epsilon 1e-4 and its other normalizations 1e-5; the difference is added "
            "to the running variances, which gives the same function in evaluation, while training has 1e-5 everywhere"
        ]
    if origin not in SAME_PADDING:
        is_equal = padding == "symmetric" or target == "canonical"
        return [] if is_equal else [f"NOT EQUAL: the model has model.padding={padding}, {other} has not"]
    if padding != PADDING[origin] or target != "canonical":
        return [f"NOT EQUAL: {origin}'s ResNet {SAME_PADDING[origin]}, {other} does not"]
    stored = " and ".join(f"model.{key}={options[key]}" for key in ("padding", "bn_eps") if key in options)
    return [
        f"{origin}'s ResNet {SAME_PADDING[origin]}. {stored} gives the same function; it is stored in the file, and a "
        "run uses it unless its recipe sets another"
    ]
