"""Tasks: a module each with its settings, its loss, the form of a prediction and the validation metric. numpy only."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError

FOLDER = Path(__file__).parent


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
            batch: the host batch; rows whose `valid` is 0 are padding and do not count.
        """

    def result(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Compute the metrics from a state that was summed over ranks.

        Raises:
            UserError: the validation set contains nothing that can be measured.
        """


class Task(Protocol):
    """The contract of each module zoo/tasks/<name>.py.

    Attributes:
        PRIMARY: the metric that is compared with the target and selects the `best` checkpoint, a key of the result.
        Settings: the class of a recipe's `task:` section with the task's usual loss.
    """

    PRIMARY: str
    Settings: type[Any]

    def Metric(self, dataset: Any, settings: Any) -> TaskMetric:
        """Return the metric of a validation split; each task implements it as a class."""

    def settings_class(self, loss: str = "") -> type[Any]:
        """Return the class of the `task:` section with a loss (zoo.losses.with_loss), the usual one if none is given.

        It is a frozen dataclass whose fields are the keys; __post_init__ raises a ValueError that begins with the name
        of the offending key.

        Raises:
            UserError: there is no such loss.
        """

    def objective(self, settings: Any) -> Any:
        """Return the specification of the loss, a frozen dataclass that each trainer implements."""

    def output(self, settings: Any) -> Any:
        """Return the specification of the arrays that Trainer.predict returns, a frozen dataclass likewise."""

    def protocol(self, views: str, settings: Any) -> str:
        """Return the last part of a protocol id: what the model sees of a sample, and how its outputs are evaluated.

        Args:
            views: the data set's part (zoo.data.datasets.common.Protocol).
            settings: of the task.
        """


def list_tasks() -> list[str]:
    """Return the names of all tasks."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def load_task(name: str) -> Task:
    """Import and return the module zoo/tasks/<name>.py.

    Raises:
        UserError: there is no such task.
    """
    if name not in list_tasks():
        raise UserError(f"there is no task {name!r}; there are: {', '.join(list_tasks())}")
    return cast(Task, importlib.import_module(f"zoo.tasks.{name}"))
