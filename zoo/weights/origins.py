"""What models of other projects compute that their tensors do not show: options of the zoo's Arch, epsilon, pixels."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from zoo.weights.infer import NOT_IN_TENSORS
from zoo.weights.layouts import EPS, MINDSPORE_EPS
from zoo.weights.mobilenet import is_online

ANTIALIAS = {  # whether the project resizes by Pillow's antialiased filter, and not by OpenCV's
    "tsm": {"mit": True, "mmaction2": False, "paddlevideo": True},
    "tsm_mobilenet_v2": {"mit": True, "torchvision": True},
    "resnet": {"torchvision": True, "paddleclas": False, "mindspore": False, "mindcv": False},
}
PADDING = {"mindcv": "same_pool", "mindspore": "same"}  # mindspore-ai/models: of 50 layers or more
HALF = [0.5, 0.5, 0.5]
SHIFT_WRAPPERS = {"block": r"\blayer1\.0\.net\.", "blockres": r"\bconv1\.(conv\.)?net\."}
WRAPPED = ("module.", "base_model.", "new_fc.", "backbone.", "cls_head.")


def architecture(
    model: str, origin: str, names: Iterable[str], depth: int, recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a model's Arch that follow from its origin.

    Args:
        model: Name of the model.
        origin: One of names.ORIGINS.
        names: Keys of the origin's state dict.
        depth: Number of layers.
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
    """Return the keys of the data section that repeat the preprocessing of the model's training, with their values.

    Args:
        model: Name of the model.
        origin: One of names.ORIGINS.
        options: All known options of the converted model.
    """
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
