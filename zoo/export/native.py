"""The model of a checkpoint in its framework, with which the graph is compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.export.source import Source
from zoo.run.job import build_trainer
from zoo.tasks import classify
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.protocol import Trainer
from zoo.trainer.world import Launch

RAW = classify.Scores()  # the model's output as it is, of a segmentation model the logits of every pixel


def build(source: Source) -> Trainer:
    """Build the model as an evaluation in fp32 does, and load the weights.

    Raises:
        UserError: the framework or the device is missing.
    """
    cfg = source.cfg
    cfg = replace(cfg, train=replace(cfg.train, ema=None, tf32=False))  # one model, and not two
    world = load_backend(cfg.framework).start(Launch(), cfg.device)
    mode = Mode("fp32", None, cfg.train.channels_last, cfg.train.compile and True)
    _, trainer = build_trainer(cfg, source.model, source.arch, source.fields, world, mode, output=RAW)
    trainer.load_state_dict(source.tensors)
    return trainer


def forward(trainer: Trainer, source: Source, pixels: np.ndarray) -> np.ndarray:
    """Return the model's output for pixels, uint8 (N, ..., 3): logits, of every pixel if it has them, or embeddings.

    Raises:
        UserError: the framework fails, such as for want of memory.
    """
    with _reporting(source, pixels):
        return trainer.predict(trainer.to_device({source.fields[0].name: pixels})).astype(np.float32)


def forward_frame(trainer: Trainer, source: Source, frame: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
    """Return the output of a causal model for the next frame, uint8 (N, H, W, 3), and the new state.

    Raises:
        UserError: as `forward`.
    """
    with _reporting(source, frame):
        output, state = trainer.predict_frame(trainer.to_device({source.fields[0].name: frame[:, None]}), state)
        return np.asarray(output, np.float32), state


@contextmanager
def _reporting(source: Source, pixels: np.ndarray) -> Iterator[None]:
    """Report a failure of the framework as an error with the size of the batch."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        shape = " x ".join(map(str, pixels.shape))
        raise UserError(
            f"{source.cfg.framework} cannot compute the model for a batch of {shape}: {error}. Nothing is written"
        ) from error
