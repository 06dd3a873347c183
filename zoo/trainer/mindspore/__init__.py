"""Trainer in MindSpore."""

import os

os.environ.setdefault("GLOG_v", "3")  # errors only: on a CPU, every start would warn of libraries for other devices

from zoo.trainer.mindspore.model import create, to_tensors
from zoo.trainer.mindspore.trainer import Trainer, record_forward
from zoo.trainer.mindspore.world import start

__all__ = ["Trainer", "create", "record_forward", "start", "to_tensors"]
