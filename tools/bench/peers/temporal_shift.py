"""The loader of mit-han-lab/temporal-shift-module: frames as JPEG files, decoded and resized by Pillow.

The transforms are those that main.py and TSM.get_augmentation put together for Kinetics and a ResNet. Unlike this
project, it normalizes in the loader.
"""

import os
from typing import Any

from zoo.bench.peers import upstream
from zoo.bench.peers.contender import MapStyle
from zoo.data.batch import IMAGENET_MEAN, IMAGENET_STD

NAME = "mit-han-lab"
SCALES = [1, 0.875, 0.75, 0.66]


def open_frames(clones: str, settings: Any) -> MapStyle:
    """Open the training list of frame folders.

    Args:
        settings: root, size and segments of zoo.data.datasets.kinetics.
    """
    folder = os.path.join(clones, "temporal-shift-module")
    transforms = upstream.load(folder, "ops.transforms")
    compose = upstream.installed("torchvision.transforms").Compose
    steps = compose(
        [
            compose(
                [
                    transforms.GroupMultiScaleCrop(settings.size, SCALES),
                    transforms.GroupRandomHorizontalFlip(is_flow=False),
                ]
            ),
            transforms.Stack(roll=False),
            transforms.ToTorchFormatTensor(div=True),
            transforms.GroupNormalize(list(IMAGENET_MEAN), list(IMAGENET_STD)),
        ]
    )
    dataset = upstream.load(folder, "ops.dataset").TSNDataSet(
        settings.root,
        os.path.join(settings.root, "train.list"),
        num_segments=settings.segments,
        image_tmpl=settings.frame_template,
        transform=steps,
    )
    return MapStyle(dataset, upstream.installed("torch.utils.data").default_collate)
