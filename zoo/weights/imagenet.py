"""ImageNet weights that models start from (model.pretrained=imagenet): entries of registry.yaml with a `variant`.

plain         torchvision's ResNets (version 1), with their classifier
deep          ResNet-v1c, with three 3x3 convolutions as stem, from which mmsegmentation starts
vd            ResNet-vd, which also averages in its shortcuts, from which PaddleSeg starts
mobilenet_v2  torchvision's MobileNetV2 (version 1), with its classifier
"""

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.weights import registry


def variant_of(arch: Any) -> str:
    """Return the variant of a model: its own, or that of its ResNet by the options `variant` and `stem`."""
    if hasattr(arch, "imagenet_variant"):
        return arch.imagenet_variant
    if getattr(arch, "variant", None) == "paddleseg":
        return "vd"
    return getattr(arch, "stem", "plain")


def published(variant: str) -> dict[int | None, registry.Published]:
    return {entry.depth: entry for entry in registry.table().values() if entry.variant == variant}


def find_weights(depth: int | None, folder: str | None = None, variant: str = "plain") -> tuple[str, str]:
    """Find the converted file of a network; convert it from the published file, which is downloaded if needed.

    Args:
        depth: Number of layers of a ResNet; None for another network.
        folder: Of the published and of the converted files; None for the shared one.

    Returns:
        The path of the converted file, and a description of where the weights come from.
    """
    entries = published(variant)
    if depth not in entries:
        raise UserError(
            f"model.pretrained: ImageNet weights of this variant ({variant}) are published for "
            f"ResNet-{', -'.join(map(str, entries))} only"
        )
    path = registry.prepare(entries[depth], folder)
    return os.path.join(path, registry.MODEL), entries[depth].title


def depths_at_hand(folder: str | None, variant: str) -> list[int | None]:
    return [depth for depth, entry in published(variant).items() if registry.is_at_hand(entry, folder)]


def add_backbone_prefix(tensors: Mapping[str, np.ndarray], model_names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a ResNet by the names of a model: with the prefix `backbone.` if the model uses it."""
    prefix = "backbone." if "backbone.conv1.weight" in model_names else ""
    return {name if name.startswith("fc.") else prefix + name: tensor for name, tensor in tensors.items()}
