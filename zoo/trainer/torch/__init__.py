"""The common trainer interface in PyTorch."""

from zoo.trainer.torch.model import create, to_tensors
from zoo.trainer.torch.trainer import Trainer, record_forward
from zoo.trainer.torch.world import start

__all__ = ["Trainer", "create", "record_forward", "start", "to_tensors"]
