"""The loader of insightface's recognition/arcface_torch: MXNet's RecordIO and image decoder, Pillow's mirroring.

Unlike this project, it normalizes in the loader.
"""

import os

import numpy as np

from zoo.bench.peers import upstream
from zoo.bench.peers.contender import MapStyle
from zoo.data.errors import UserError

NAME = "insightface"


def open_faces(clones: str, root: str) -> MapStyle:
    """Open the pack train.rec of a folder."""
    if "bool" not in vars(np):
        vars(np)["bool"] = bool  # MXNet 1.9.1 looks for this alias of numpy before 1.24
    folder = os.path.join(clones, "insightface/recognition/arcface_torch")
    try:
        dataset = upstream.load(folder, "dataset").MXFaceDataset(root_dir=root, local_rank=0)
    except AttributeError as error:  # MXNet and numpy 2
        raise UserError(f"mxnet: {error}; it needs numpy 1") from error
    return MapStyle(dataset, upstream.installed("torch.utils.data").default_collate)
