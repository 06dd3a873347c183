"""The classes of a stream, frame by frame: preprocessing of an evaluation, state of the model, mean of logits."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.config.schema import Config
from zoo.data.datasets import kinetics
from zoo.data.errors import UserError
from zoo.data.transforms import pixels
from zoo.models import load_spec
from zoo.predict.classify import softmax
from zoo.predict.model import TrainedModel

Shapes = Sequence[tuple[int, ...]]
MAX_SIDE = 4096  # pixels of a frame, because recipes may come from strangers; those of data sets have 224


def state_shapes(model: str, cfg: Config) -> Shapes:
    """Return the shapes of a model's state, without the batch.

    Args:
        model: its name.
        cfg: the recipe that it was trained with.

    Raises:
        UserError: the model does not classify frame by frame, or its frames are too large.
    """
    spec: Any = load_spec(model)
    if not hasattr(spec, "state_shapes"):
        raise UserError(f"--stream: a {model} has no stream; give a checkpoint of tsm or tsm_mobilenet_v2")
    settings: Any = cfg.data
    side = settings.eval_size or settings.size
    if side > MAX_SIDE:
        raise UserError(f"--stream: frames of {side} x {side} pixels, the limit is {MAX_SIDE}; give -o data.size=N")
    try:
        return spec.state_shapes(cfg.model, side, side)
    except ValueError as error:
        raise UserError(f"--stream: model.{error}, as configs/tsm_online_k400.yaml does") from None


class FrameClassifier:
    """A causal model and its state: what it has kept of the frames so far."""

    def __init__(self, model: TrainedModel, shapes: Shapes, smooth: int):
        """Begin a stream.

        Args:
            model: its trainer has predict_frame.
            shapes: of its state, without the batch.
            smooth: number of frames whose logits are averaged.
        """
        self.model, self.settings = model, model.cfg.data
        zeros = {f"state_{i}": np.zeros((1, *shape), np.float32) for i, shape in enumerate(shapes)}
        self.state: Sequence = tuple(model.trainer.to_device(zeros).values())
        self.recent: deque[np.ndarray] = deque(maxlen=smooth)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Return the probabilities (K,) of the classes, float64: those of the mean of the last frames' logits.

        Args:
            image: the next frame, uint8 RGB (H, W, 3), of any size.

        Raises:
            BadSample: the logits are not finite.
        """
        self.recent.append(self.logits(image))
        return softmax(np.mean(self.recent, 0))

    def warm_up(self) -> None:
        """Predict a black frame and forget it: what is compiled or missing shows before the stream begins.

        Raises:
            UserError: the model does not take single frames.
        """
        side = self.settings.eval_size or self.settings.size
        self._forward(np.zeros((side, side, 3), np.uint8))

    def logits(self, image: np.ndarray) -> np.ndarray:
        """Return the logits of the next frame alone, float64 (K,)."""
        logits, self.state = self._forward(preprocess(image, self.settings))
        return logits

    def _forward(self, pixels: np.ndarray) -> tuple[np.ndarray, Sequence]:
        """Return the logits of a prepared frame, and the state after it."""
        trainer = self.model.trainer
        batch = trainer.to_device({"video": pixels[None, None]})  # one stream, one frame
        logits, state = trainer.predict_frame(batch, self.state)
        return logits[0].astype(np.float64), state


def preprocess(image: np.ndarray, settings: kinetics.Settings) -> np.ndarray:
    """Resize and crop a frame as an evaluation with one crop does: uint8 (H, W, 3) -> uint8 (size, size, 3)."""
    height, width = image.shape[:2]
    (geometry,) = kinetics.evaluation_geometries(settings, (width, height), crops=1)
    return pixels.apply(image, geometry)
