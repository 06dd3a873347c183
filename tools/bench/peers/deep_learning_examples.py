"""The PyTorch loader of NVIDIA's DeepLearningExamples for ResNet-50: Pillow, and uint8 batches."""

import os
from typing import Any

from zoo.bench.peers import upstream
from zoo.bench.peers.contender import MapStyle

NAME = "NVIDIA"


def open_images(clones: str, settings: Any) -> MapStyle:
    """Open the training images with data set and collate function of get_pytorch_train_loader.

    Args:
        settings: root and size of zoo.data.datasets.imagenet.
    """
    upstream.installed("torchvision")  # which looks for triton, the name of a folder of that project
    folder = os.path.join(clones, "DeepLearningExamples/PyTorch/Classification/ConvNets")
    dataloaders = upstream.load(folder, "image_classification.dataloaders")
    wrapper, _ = dataloaders.get_pytorch_train_loader(settings.root, settings.size, 1, 1000, False, workers=1)
    return MapStyle(wrapper.dataloader.dataset, wrapper.dataloader.collate_fn)
