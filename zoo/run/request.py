"""Options of a command line, and the resolved recipe that results from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo import data, losses, optim, tasks
from zoo.config import loader
from zoo.config.schema import Config
from zoo.models import load_spec


def _task_settings(model: str, dataset: str = "", loss: str = "") -> type[Any]:
    """Return the class of section `task:` of a model and a data set with a loss, the usual one if none is given."""
    task, wanted = load_spec(model).TASK, getattr(data.find(dataset).Settings, "task", "") if dataset else ""
    task = wanted if tasks.VARIANTS.get(wanted) == task else task
    return losses.load_loss(task, loss) if loss else tasks.load_task(task).Settings


NEWEST = "newest"  # `resume` without a folder
# Section of a recipe -> the keys that name its module and a variant, the settings class for their values, and who else
# has a key of the section.
FIND: dict[str, loader.Lookup] = {
    "model": (("model.name",), lambda name: load_spec(name).Arch),
    "data": (("data.name",), lambda name: data.find(name).Settings),
    "task": (("model.name", "data.name", "task.loss"), _task_settings, losses.owner),
    "optim": (("optim.name",), optim.load_settings, optim.owner),
}


@dataclass(frozen=True)
class Options:
    """A recipe and the changes to it, as train.py and the tools take them from their command lines.

    Attributes:
        config: path of the recipe; None for that of the run to resume, or of the checkpoint that `weights` names.
        overrides: `key=value` pairs; they take precedence over the other attributes.
        amp, exact: whether train.precision is amp or exact.
        framework, device, seed, out, weights: values of these keys; None keeps that of the recipe.
        resume: folder of the run to continue, or NEWEST for the newest run of the recipe.
        global_batch: a number of samples, or `keep`.
    """

    config: str | None = None
    overrides: Sequence[str] = ()
    amp: bool = False
    exact: bool = False
    deterministic: bool = False
    framework: str | None = None
    device: str | None = None
    seed: int | None = None
    out: str | None = None
    weights: str | None = None
    resume: str | None = None
    global_batch: str | None = None
    eval_only: bool = False


@dataclass(frozen=True)
class Window:
    """Updates of a speed run.

    Attributes:
        drop: updates before the clock starts, at least 1: the first one compiles and warms up.
    """

    drop: int = 20
    count: int = 100

    @property
    def steps(self) -> int:
        return self.drop + self.count


class Request(NamedTuple):
    """A resolved recipe and what to do with it."""

    config: Config
    resolved: loader.Entries  # value and origin of every key; `weights` as they were named, in config as a path
    recipe: str  # name of the recipe
    resume: str | None  # folder of the run to continue, None for a new run
    changed: list[str]  # what differs from the recipe that the run to continue began with
    notes: list[str]  # what the recipe takes from its weights
    eval_only: bool = False
    check_only: bool = False  # stop before the first update, after all that may refuse the run
    max_steps: int | None = None  # stop after this many updates
    until_target: bool = False  # stop at the evaluation that reaches the target
    speed: Window | None = None  # time these updates and do nothing else
    track: Mapping[str, str] = MappingProxyType({})  # project by name of an experiment tracker
    turns: str | None = None  # socket of the program that gives turns to several speed runs
    verbose: bool = False  # print every event
    accept_changed_data: bool = False  # resume although the data are not those that the run was trained on
