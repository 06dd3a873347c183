"""Trainer in MindSpore."""

import os

os.environ.setdefault("GLOG_v", "3")  # errors only: on a CPU, every start would warn of libraries for other devices

from zoo.trainer.mindspore.model import load_arrays, to_tensors
from zoo.trainer.mindspore.trainer import Trainer, record_forward
from zoo.trainer.mindspore.world import start

__all__ = ["Trainer", "load_arrays", "record_forward", "start", "to_tensors"]
