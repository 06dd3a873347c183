"""What computes a model: PyTorch as it evaluates, and ONNX Runtime; both from pixels to the model's output."""

from collections.abc import Callable

import numpy as np

from zoo.export import native
from zoo.export.source import Source
from zoo.run import exported
from zoo.trainer import load_onnx_backend
from zoo.trainer.world import Launch

Forward = Callable[[np.ndarray], np.ndarray]


def torch(checkpoint: Source) -> Forward:
    """Return the function of pixels, uint8 (N, ..., 3), in PyTorch."""
    trainer, name = native.build(checkpoint), checkpoint.fields[0].name
    return lambda pixels: trainer.predict(trainer.to_device({name: pixels}))


def onnx(checkpoint: Source, path: str) -> Forward:
    """Return the function of pixels in ONNX Runtime. path: of the exported file."""
    world = load_onnx_backend().start(Launch(), "cpu")
    _, model, _ = exported.build(path, checkpoint.cfg, checkpoint.model, checkpoint.arch, checkpoint.fields, world)
    return model.forward
