"""A trained model as the predictors take it."""

from typing import Any, NamedTuple

import numpy as np

from zoo.config.schema import Config
from zoo.trainer.protocol import Inference

Source = str | np.ndarray  # a path, or decoded pixels: uint8 RGB (H, W, 3), of a video (n, H, W, 3)


class TrainedModel(NamedTuple):
    """A model with loaded weights and the recipe that it was trained with.

    Attributes:
        cfg: the recipe.
        trainer: predicts in fp32, or as it was exported.
        class_names: of the model's outputs, in order; empty for faces.
        metadata: what predictions.json records about the model.
    """

    cfg: Config
    trainer: Inference
    class_names: tuple[str, ...]
    metadata: dict[str, Any]
