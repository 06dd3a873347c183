"""Weights & Biases' view of a run (`--wandb PROJECT`), if its package is installed; nothing else imports it."""

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.logs.journal import Event
from zoo.logs.viewers import SHOWN_EVENTS, Histogram, numbers

ID_FILE = "wandb_id"  # in the run's folder, so that a resumed run goes on there too


def require() -> None:
    """Raise UserError if the package is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError("--wandb: the package is not installed: pip install wandb")


class WeightsAndBiases:
    """Viewer that logs numbers, images and histograms, with the recipe as config; see zoo.logs.viewers.

    WANDB_MODE=offline and the other variables of the package count as always.
    """

    def __init__(self, run: str, project: str, recipe: Mapping[str, Any]):
        """Start or continue the run there.

        Args:
            run: folder of the run, whose name is that of the run there.
            project: its project.
            recipe: values by key.

        Raises:
            UserError: the package refuses, for example because nobody is logged in.
        """
        import wandb

        self._wandb = wandb
        try:
            self._run = wandb.init(
                project=project,
                name=os.path.basename(os.path.abspath(run)),
                id=_read_id(run),
                resume="allow",
                dir=run,
                config=dict(recipe),
            )
        except wandb.Error as error:
            raise UserError(f"--wandb: {error} (`wandb login`, or export WANDB_MODE=offline)") from None
        with open(os.path.join(run, ID_FILE), "w", encoding="utf-8") as file:
            file.write(self._run.id)
        self._run.define_metric("*", step_metric="step")  # the package's own steps cannot go back after a kill

    def __call__(self, event: Event) -> None:
        if event["event"] in SHOWN_EVENTS:
            self._run.log({**dict(numbers(event)), "step": event["step"]})

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        """Log images and histograms."""
        shown = {name: self._wandb.Image(pixels) for name, pixels in images.items()}
        bars = {name: self._wandb.Histogram(np_histogram=tuple(histogram)) for name, histogram in histograms.items()}
        if shown or bars:
            self._run.log({**shown, **bars, "step": step})

    def close(self) -> None:
        self._run.finish()


def _read_id(run: str) -> str | None:
    path = os.path.join(run, ID_FILE)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()
