"""The common trainer interface in PaddlePaddle."""

import contextlib
import io
import os

# Left unset, Paddle sets it to 1 while it is imported, and large convolutions take twice as long.
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
with contextlib.redirect_stderr(io.StringIO()):  # of any other number it warns, for those who start many processes
    from zoo.trainer.paddle.trainer import Trainer
    from zoo.trainer.paddle.world import start

__all__ = ["Trainer", "start"]
