"""Small face recognition models, saved as insightface and PLSC save them."""

import json
import pickle
import struct
from dataclasses import replace

import numpy as np
import torch

from tests.zoo.models.arcface.golden import drawn
from zoo.models.arcface import spec
from zoo.weights import faces

SMALL = spec.Arch(depth=18, width=2, embedding=6, size=20)
PLSC = replace(SMALL, variant="plsc")
DTYPE_CODES = {"float32": 5, "float16": 4, "int64": 3}


def variable(array):
    """Return a file of Paddle 1, as described in zoo/weights/pdparams.py."""
    sizes = b""
    for size in array.shape:
        sizes += b"\x10"
        while size > 127:
            sizes += bytes([size & 127 | 128])
            size >>= 7
        sizes += bytes([size])
    message = bytes([8, DTYPE_CODES[str(array.dtype)]]) + sizes
    return struct.pack("<IQIi", 0, 0, 0, len(message)) + message + array.tobytes()


def backbone(arch):
    """Draw canonical tensors, without the classifier weight."""
    shapes = spec.shapes(replace(arch, num_classes=1))
    return {name: drawn(name, shape) for name, shape in shapes.items() if name != spec.HEAD_WEIGHT}


def class_rows(classes, embedding=6):
    """Draw a classifier weight."""
    return np.random.default_rng(classes).standard_normal((classes, embedding), dtype=np.float32)


def as_insightface(tensors):
    state = {name: torch.from_numpy(tensor) for name, tensor in tensors.items()}
    norms = [name for name in tensors if name.endswith("running_var")]
    return {**state, **{name.replace("running_var", "num_batches_tracked"): torch.tensor(5) for name in norms}}


def save_plsc(folder, tensors, columns=(), meta=None):
    """Write the folder of a pass: the backbone, the columns of each rank, and training state beside them."""
    folder.mkdir()
    for variable_name, name in faces.plsc_names(sum(spec.BLOCKS[18])).items():
        tensor = tensors[name].T if name == "fc.weight" else tensors[name]
        (folder / variable_name).write_bytes(variable(np.ascontiguousarray(tensor)))
    (folder / "conv2d_0.w_0_velocity_0").write_bytes(variable(tensors["conv1.weight"]))
    (folder / "@LR_DECAY_COUNTER@").write_bytes(variable(np.array([7], np.int64)))
    for rank, part in enumerate(columns):
        name = f"dist@arcface@rank@{rank:05d}.w_0"
        (folder / name).write_bytes(variable(part))
        (folder / f"{name}_velocity_0").write_bytes(variable(part))
    if meta:
        (folder / "meta.json").write_text(json.dumps(meta))


def save_plsc2(path, tensors, head=None):
    """Write a state dict as paddle.save does, a pickle of arrays."""
    statistics = {"running_mean": "_mean", "running_var": "_variance"}
    state = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        part = "_weight" if module.endswith("prelu") else statistics.get(part, part)
        state[f"{module}.{part}"] = np.ascontiguousarray(tensor.T) if name == "fc.weight" else tensor
    if head is not None:
        state[spec.HEAD_WEIGHT] = head
    path.write_bytes(pickle.dumps(state, protocol=4))
