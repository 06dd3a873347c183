"""Runs in a program or notebook: what train.py does, in this process."""

import json
import os
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.run import cli, training
from zoo.run.checkpoint import FOLDER


class Result(NamedTuple):
    """What a training leaves.

    Attributes:
        metrics: of the last evaluation, as in events.jsonl; None if this process made none.
        folder: of the run; None in a process of another rank than 0.
    """

    metrics: dict[str, Any] | None
    folder: str | None

    @property
    def checkpoint(self) -> str:
        """Folder of the best checkpoint, for zoo.load."""
        return os.path.join(self.folder or "", FOLDER, "best")


class Run:
    """A run of a recipe in this process, equal to `python train.py -c RECIPE -o KEY=VALUE ...`.

    Attributes:
        recipe: value of every key of the resolved recipe, by dotted key.
    """

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
            framework: torch, paddle or mindspore; default that of the recipe. A process can use one of them.
            device, amp, seed, out, weights, resume, max_steps, accept_changed_data: as the flags of train.py.

        Raises:
            UserError: a value or a key is wrong; the message names its place.
        """
        if max_steps is not None and max_steps < 1:
            raise UserError("max_steps: must be at least 1")
        self._has_weights = bool(weights or resume)
        self._flags: dict[str, Any] = {"max_steps": max_steps, "accept_changed_data": accept_changed_data}
        self._arguments: dict[str, Any] = {
            "config": _path(recipe),
            "overrides": override_pairs(overrides),
            "framework": framework,
            "device": device,
            "amp": amp,
            "seed": seed,
            "out": _path(out),
            "weights": _path(weights),
            "resume": _path(resume),
        }
        self.recipe = {key: entry.value for key, entry in cli.request(**self._arguments).resolved.items()}

    def train(self) -> Result:
        """Train to the end of the recipe, or to max_steps; return the metrics and the folder of the run.

        A second call is a second run. Ctrl-C saves after the current step, and then interrupts as usual.

        Raises:
            UserError: anything that the user can fix.
        """
        run = training.execute(cli.request(**self._arguments)._replace(**self._flags))
        if run.exit_code:
            signal.raise_signal(run.exit_code - 128)
        return Result(run.metrics or run.journal.last("eval"), run.folder)

    def evaluate(self) -> dict[str, Any]:
        """Return the metrics of `weights`, or of the last checkpoint of the run in `resume`; write nothing.

        Raises:
            UserError: anything that the user can fix.
        """
        if not self._has_weights:
            raise UserError("evaluate: name what to evaluate with weights=PATH or resume=FOLDER")
        run = training.execute(cli.request(**self._arguments, eval_only=True))
        return run.metrics or {}


def override_pairs(overrides: Any) -> list[str]:
    """Return values by dotted key as the words of train.py's -o; JSON is YAML. Raises UserError for anything else."""
    if not isinstance(overrides, Mapping | None):
        raise UserError(f'overrides: expected values by key, such as {{"optim.lr": 0.01}}, got {overrides!r}')
    return [f"{key}={json.dumps(value, default=str)}" for key, value in (overrides or {}).items()]


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
