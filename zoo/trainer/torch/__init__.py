"""The common trainer interface in PyTorch."""

import os

# Threads that wait in GNU's OpenMP spin for milliseconds, which takes the time of those that they wait for where other
# programs compute: a small model then takes up to eight times the CPU time. With 10,000 rounds they sleep after 0.1 to
# 0.4 ms, and are as fast where nothing else runs.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from zoo.trainer.torch.model import load_arrays, to_tensors
from zoo.trainer.torch.trainer import Trainer, record_forward
from zoo.trainer.torch.world import start

__all__ = ["Trainer", "load_arrays", "record_forward", "start", "to_tensors"]
