"""Key mapping of MobileNetV2 from other projects to the canonical names of zoo/models/tsm_mobilenet_v2/spec.py.

torchvision    convolution and normalization nested: features.2.conv.0.0, features.2.conv.0.1
mit            one list of layers: features.2.conv.0, features.2.conv.1; ReLU6 counts too
"""

import re
from collections.abc import Callable, Iterable, Mapping
from re import Match

from zoo.weights.segmentation import Rule

EXPANDED = {  # layer in its block -> canonical name
    "torchvision": {
        "0.0": "expand",
        "0.1": "bn1",
        "1.0": "depthwise",
        "1.1": "bn2",
        "2": "project",
        "3": "bn3",
    },
    "mit": {"0": "expand", "1": "bn1", "3": "depthwise", "4": "bn2", "6": "project", "7": "bn3"},
}
FIRST = {  # the same for the first block, which has no expansion
    "torchvision": {"0.0": "depthwise", "0.1": "bn2", "1": "project", "2": "bn3"},
    "mit": {"0": "depthwise", "1": "bn2", "3": "project", "4": "bn3"},
}


def _layer_of(first: Mapping[str, str], expanded: Mapping[str, str]) -> Callable[[Match[str]], str]:
    """Return the replacement of features.2.conv.0.0 by blocks.1.expand; a layer that no table has stays."""

    def replace(match: Match[str]) -> str:
        number = int(match[1])
        layer = (first if number == 1 else expanded).get(match[2])
        return f"blocks.{number - 1}.{layer}." if layer else match[0]

    return replace


def _rules(origin: str) -> tuple[Rule, ...]:
    return (
        (r"^features\.(\d+)\.conv\.(\d+(?:\.\d+)?)\.(?=[a-z])", _layer_of(FIRST[origin], EXPANDED[origin])),
        (r"^features\.0\.0\.", "conv1."),
        (r"^features\.0\.1\.", "bn1."),
        (r"^features\.18\.0\.", "conv2."),
        (r"^features\.18\.1\.", "bn2."),
        (r"^classifier\.(1\.)?", "fc."),
    )


TORCHVISION, MIT = _rules("torchvision"), _rules("mit")


def is_online(names: Iterable[str]) -> bool:
    """Return whether a state dict is that of mit-han-lab's online_demo: its layers, without the wrappers of its TSN."""
    return "features.1.conv.1.running_mean" in set(names)  # torchvision's layers are nested


def detect(names: Iterable[str]) -> bool:
    """Return whether a state dict with these names is one of MobileNetV2, of a known origin or canonical."""
    return any(re.search(r"\bfeatures\.17\.conv\.|^blocks\.16\.project\.", name) for name in names)
