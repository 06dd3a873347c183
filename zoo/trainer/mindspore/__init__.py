"""The common trainer interface in MindSpore."""
import os

os.environ.setdefault("GLOG_v", "3")  # errors alone: on a CPU, every start would warn of libraries for other devices

from zoo.trainer.mindspore.trainer import Trainer  # noqa: E402
from zoo.trainer.mindspore.world import start  # noqa: E402

__all__ = ["Trainer", "start"]
