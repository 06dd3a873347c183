"""Trainer in PaddlePaddle."""

import contextlib
import io
import os

from zoo.data import host
from zoo.trainer.device import prepare_mkl

# Unset, Paddle would set it to 1 when it is imported, and large convolutions would take twice as long.
os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(host.core_share([host.cores()], 0, host.cpu_quota())))))
prepare_mkl(os.environ)
with contextlib.redirect_stderr(io.StringIO()):  # it warns of every other number
    from zoo.trainer.paddle.model import create, to_tensors
    from zoo.trainer.paddle.trainer import Trainer, record_forward
    from zoo.trainer.paddle.world import start

__all__ = ["Trainer", "create", "record_forward", "start", "to_tensors"]
