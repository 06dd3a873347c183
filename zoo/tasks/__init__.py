"""Tasks: a module each with its settings, its loss, the form of a prediction and the validation metric. numpy only.

Other packages add tasks by entry points of the group `zoo.tasks` (zoo/data/plugins.py).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from zoo.data import plugins
from zoo.data.batch import Batch

FILES = sorted(Path(__file__).parent.glob("[!_]*.py"))
OWN = {path.stem: f"{__name__}.{path.stem}" for path in FILES}
VARIANTS = {"multilabel": "classify"}  # tasks of certain data sets -> the task of the models for them
Forward = Callable[[Any], Any]
Size = tuple[int, int]


class TaskMetric(Protocol):
    """Validation metric of a task: an instance of its class Metric(dataset, settings).

    Attributes:
        state: sums and counts by name. They are additive over batches and ranks: a rank updates its own state with its
            batches, and the result is computed from the element-wise sum of all ranks' states.
    """

    state: dict[str, np.ndarray]

    def update(self, outputs: np.ndarray, batch: Batch) -> None:
        """Add a batch to the state.

        Args:
            outputs: the result of Trainer.predict for the batch, in the form that the task's `output` specifies.
            batch: the host batch, with `index` (rows,), the number of each sample in its split; rows whose `valid` is 0
                are padding and do not count.
        """

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Compute the metrics from a state that was summed over ranks."""


class Output(Protocol):
    def predict(self, ops: Any, arch: Any, forward: Forward, images: Sequence[Any], size: Size | None) -> Any:
        """Compute the predictions of a batch.

        Args:
            forward: raw input (N, ..., 3) -> the model's output in evaluation mode and fp32 or fp64.
            images: the batch's input; several for multi-scale evaluation.
            size: height and width of the prediction where it has pixels; None for those of the input.
        """


class Task(Protocol):
    """The contract of each module zoo/tasks/<name>.py.

    Attributes:
        PRIMARY: the metric that is compared with the target and selects the `best` checkpoint, a key of the result.
        Settings: the class of a recipe's `task:` section with the task's usual loss, one of zoo.losses.
        Objective: the training loss in any framework, of a task of a package: a class as those of
            zoo/trainer/objectives.py.
    """

    PRIMARY: str
    Settings: type[Any]
    Objective: type[Any]

    def Metric(self, dataset: Any, settings: Any) -> TaskMetric:
        """Return the metric of a validation split; each task implements it as a class."""

    def output(self, settings: Any) -> Any:
        """Return what makes the arrays that Trainer.predict returns of a model's outputs: an Output."""

    def protocol(self, views: str, settings: Any) -> str:
        """Return the last part of a protocol id: what the model sees of a sample, and how its outputs are evaluated.

        Args:
            views: the data set's part (zoo.data.datasets.common.Protocol).
        """


def list_tasks() -> list[str]:
    return plugins.names(__name__, OWN)


def load_task(name: str) -> Task:
    """Import and return the module of a task, zoo/tasks/<name>.py or that of an installed package."""
    return cast(Task, plugins.load("task", __name__, OWN, name, "PRIMARY", "Settings", "Metric", "output", "protocol"))
