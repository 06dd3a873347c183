"""Runs in a program or notebook: what train.py does, in this process."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from zoo.data.errors import Option, UserError
from zoo.logs.journal import Event, best_evaluation
from zoo.run import training
from zoo.run.checkpoint import FOLDER
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options


@contextmanager
def argument_names() -> Iterator[None]:
    """Let messages of the program name arguments of the API: overrides={'optim.lr': 0.1} instead of -o optim.lr=0.1."""
    try:
        yield
    except UserError as error:
        error.words = _as_argument
        raise


def _as_argument(option: Option) -> str:
    name, value = option
    if not name.startswith("--"):
        return f"overrides: {name}" if value == "" else f"overrides={ {name: value} }"
    name = name[2:].replace("-", "_")
    return name if value == "" else f"{name}={value}"


def _metrics(event: Event | None) -> dict[str, Any] | None:
    return event and {name: value for name, value in event.items() if name not in ("event", "time", "step", "epoch")}


class Result(NamedTuple):
    """Result of a training.

    Attributes:
        metrics: of `checkpoint`, as in events.jsonl; None if there was no evaluation.
        folder: of the run; None in a process of another rank than 0, whose metrics are the last ones.
        last_metrics: of the last evaluation.
    """

    metrics: dict[str, Any] | None
    folder: str | None
    last_metrics: dict[str, Any] | None

    @property
    def checkpoint(self) -> str:
        """Folder of the best checkpoint, for zoo.load."""
        return os.path.join(self.folder or "", FOLDER, "best")


class Run:
    """A run of a recipe in this process, equal to `python train.py -c RECIPE -o KEY=VALUE ...`.

    Attributes:
        recipe: value of every key of the resolved recipe, by dotted key.
    """

    @argument_names()
    def __init__(
        self,
        recipe: str | os.PathLike[str] | None,
        overrides: Mapping[str, Any] | None = None,
        *,
        framework: str | None = None,
        device: str | None = None,
        amp: bool = False,
        seed: int | None = None,
        out: str | os.PathLike[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        resume: str | os.PathLike[str] | None = None,
        max_steps: int | None = None,
        accept_changed_data: bool = False,
    ):
        """Resolve the recipe.

        Args:
            recipe: path, or name of a recipe of the zoo, such as configs/tsm_demo.yaml; None for that of the run to
                resume, or of the checkpoint in `weights`.
            overrides: values by dotted key, such as {"optim.lr": 0.01}.
            framework: torch, paddle, mindspore or jax; default that of the recipe. A process can use one of them.
            device, amp, seed, out, weights, resume, max_steps, accept_changed_data: as the flags of train.py.

        Raises:
            UserError: a value or a key is wrong; the message names its place.
        """
        if max_steps is not None and max_steps < 1:
            raise UserError("max_steps: must be at least 1")
        self._has_weights = bool(weights or resume)
        self._flags: dict[str, Any] = {"max_steps": max_steps, "accept_changed_data": accept_changed_data}
        self._options = Options(
            config=_path(recipe),
            overrides=override_pairs(overrides),
            framework=framework,
            device=device,
            amp=amp,
            seed=seed,
            out=_path(out),
            weights=_path(weights),
            resume=_path(resume),
        )
        self.recipe = {key: entry.value for key, entry in resolve_recipe(self._options).resolved.items()}

    @argument_names()
    def train(self) -> Result:
        """Train to the end of the recipe, or to max_steps; return the metrics and the folder of the run.

        A second call is a second run. Ctrl-C saves after the current step, and then interrupts as usual.

        Raises:
            UserError: anything that the user can fix.
        """
        run = training.execute(resolve_recipe(self._options)._replace(**self._flags))
        if run.exit_code:
            signal.raise_signal(run.exit_code - 128)
        last = run.metrics or _metrics(run.journal.last("eval"))
        return Result(_metrics(best_evaluation(run.journal.events)) or last, run.folder, last)

    @argument_names()
    def evaluate(self) -> dict[str, Any]:
        """Return the metrics of `weights`, or of the last checkpoint of the run in `resume`; write nothing.

        Raises:
            UserError: anything that the user can fix.
        """
        if not self._has_weights:
            raise UserError("evaluate: name what to evaluate with weights=PATH or resume=FOLDER")
        run = training.execute(resolve_recipe(replace(self._options, eval_only=True)))
        return run.metrics or {}


def override_pairs(overrides: Any) -> list[str]:
    """Return values by dotted key as the words of train.py's -o; JSON is YAML. Raises UserError for anything else."""
    if not isinstance(overrides, Mapping | None):
        raise UserError(f'overrides: expected values by key, such as {{"optim.lr": 0.01}}, got {overrides!r}')
    return [f"{key}={json.dumps(value, default=str)}" for key, value in (overrides or {}).items()]


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
