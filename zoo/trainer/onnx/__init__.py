"""The half of the trainer interface that predicts, for exported models: ONNX Runtime and numpy."""

from zoo.trainer.onnx.model import OnnxModel
from zoo.trainer.onnx.world import Session, start

__all__ = ["OnnxModel", "Session", "start"]
