"""A trained model as the predictors take it."""

from typing import Any, NamedTuple

from zoo.config.schema import Config
from zoo.trainer.protocol import Trainer


class TrainedModel(NamedTuple):
    """A trainer with loaded weights and the recipe that it was trained with.

    Attributes:
        cfg: the recipe.
        trainer: predicts in fp32.
        class_names: of the model's outputs, in order; empty for faces.
        metadata: what predictions.json records about the model.
    """

    cfg: Config
    trainer: Trainer
    class_names: tuple[str, ...]
    metadata: dict[str, Any]
