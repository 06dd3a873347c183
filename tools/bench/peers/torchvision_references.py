"""The loader of torchvision's references/classification: ImageFolder and the training preset, on Pillow images.

Unlike this project, it normalizes in the loader.
"""

import os
from typing import Any

from zoo.bench.peers import upstream
from zoo.bench.peers.contender import MapStyle

NAME = "torchvision"


def open_images(clones: str, settings: Any) -> MapStyle:
    """Open the training images with the transforms of train.py's default options.

    Args:
        settings: root and size of zoo.data.datasets.imagenet.
    """
    presets = upstream.load(os.path.join(clones, "vision/references/classification"), "presets")
    folders = upstream.installed("torchvision.datasets").ImageFolder
    dataset = folders(os.path.join(settings.root, "train"), presets.ClassificationPresetTrain(crop_size=settings.size))
    return MapStyle(dataset, upstream.installed("torch.utils.data").default_collate)
