"""The half of the trainer interface that predicts, for exported models: ONNX Runtime and numpy."""

from zoo.trainer.onnx.model import OnnxModel
from zoo.trainer.onnx.session import Session
from zoo.trainer.onnx.world import start

__all__ = ["OnnxModel", "Session", "start"]
