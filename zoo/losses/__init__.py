"""Losses: the specification of each, zoo/losses/<task>/<name>.py, which knows no framework.

`task.loss` of a recipe names the file. The fields of its class Loss are further keys of the section `task:`. The
implementation is the file of the same path below zoo/trainer/<framework>/.
"""

import importlib
from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from zoo.data.errors import UserError, known_names

FOLDER = Path(__file__).parent


def list_losses(task: str) -> list[str]:
    """Return the names of a task's losses."""
    return sorted(path.stem for path in (FOLDER / task).glob("*.py") if path.stem != "__init__")


def load_loss(task: str, name: str) -> type[Any]:
    """Import zoo/losses/<task>/<name>.py and return its class Loss.

    Raises:
        UserError: the task has no such loss.
    """
    names = list_losses(task)
    if name not in names:
        raise UserError(f"the task {task} has no loss {name!r}{known_names(name, names)}")
    return importlib.import_module(f"zoo.losses.{task}.{name}").Loss


@cache
def with_loss(task: str, keys: type[Any], name: str) -> type[Any]:
    """Return the settings of a task with a loss: a frozen dataclass with the keys of both, and `loss`.

    Its attribute OTHER_KEYS has the keys of the task's other losses, and which loss has them.

    Args:
        task: its name.
        keys: the task's own keys, a frozen dataclass.
        name: of the loss.

    Raises:
        UserError: the task has no such loss.
    """
    loss = load_loss(task, name)
    hints = get_type_hints(loss)
    options = [(option.name, hints[option.name], field(default=option.default)) for option in fields(loss)]
    check: Callable[[Any], None] = getattr(keys, "__post_init__", lambda settings: None)

    def check_both(settings: Any) -> None:
        check(settings)
        loss_of(task, settings)

    return make_dataclass(
        "Settings",
        [("loss", str, field(default=name)), *options],
        bases=(keys,),
        namespace={
            "__post_init__": check_both,
            "__doc__": f"The `task:` section with task.loss={name}.",
            "OTHER_KEYS": _keys_of_other_losses(task, {*hints, *(own.name for own in fields(keys))}),
        },
        frozen=True,
        kw_only=True,
    )


def loss_of(task: str, settings: Any) -> Any:
    """Return the specification of the loss that a task's settings describe.

    Raises:
        ValueError: a value is impossible; the message begins with the name of its key.
    """
    loss = load_loss(task, settings.loss)
    return loss(**{option.name: getattr(settings, option.name) for option in fields(loss)})


def load_implementation(loss: Any, framework: str) -> ModuleType:
    """Import and return the module that implements a loss in a framework.

    Args:
        loss: its specification.
        framework: name of the framework.

    Raises:
        UserError: the framework has none.
    """
    *_, task, name = type(loss).__module__.split(".")
    path = FOLDER.parent / "trainer" / framework / "losses" / task / f"{name}.py"
    if not path.exists():
        raise UserError(
            f"task.loss: {framework} has no {name} for the task {task}; write zoo/trainer/{framework}/losses/{task}/"
            f"{name}.py, or choose another loss or framework"
        )
    return importlib.import_module(f"zoo.trainer.{framework}.losses.{task}.{name}")


def _keys_of_other_losses(task: str, known: set[str]) -> dict[str, str]:
    """Return whose keys those of all losses are, without the known ones: a setting that selects a loss of the task.

    Of a key that only losses of another task have, it is that task.
    """
    owners: dict[str, str] = {}
    for other in sorted((folder.name for folder in FOLDER.iterdir() if folder.is_dir()), key=lambda name: name != task):
        for name in list_losses(other):
            for option in fields(load_loss(other, name)):
                owners.setdefault(option.name, f"task.loss={name}" if other == task else f"losses of the task {other}")
    return {key: owner for key, owner in owners.items() if key not in known}
