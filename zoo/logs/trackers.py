"""Experiment trackers (`--track NAME[:PROJECT]`), by their own packages, whose environment variables count as always:
WANDB_MODE=offline, MLFLOW_TRACKING_URI, SWANLAB_MODE=offline, TRACKIO_SPACE_ID and the like.
"""

import importlib
import importlib.util
import os
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data import durable
from zoo.data.errors import UserError, known_names, printable
from zoo.logs.journal import Event
from zoo.logs.viewers import GROUPS, Histogram, numbers

DEFAULT_PROJECT = "vision-zoo"
NOT_IN_NAMES = re.compile(r"[^\w\-. /]")  # of MLflow's metrics and images


class Tracker:
    """Viewer that logs numbers, images and histograms by a package. A resumed run goes on in the same run there."""

    name = ""  # of the package
    login = ""  # how to log in or do without

    def __init__(self, folder: str, project: str, recipe: Mapping[str, Any]):
        """Start or continue a run with the folder's name in a project, which is an experiment of MLflow."""
        id_file = Path(folder, f"{self.name}_id")
        known = None
        try:
            if id_file.exists():
                with open(id_file, encoding="utf-8", opener=durable.regular) as file:  # what it holds is sent there
                    known = file.read()
            self._package: Any = importlib.import_module(self.name)
            started = self._start(folder, known, project, dict(recipe))
        except Exception as error:  # of many classes, which have no common base
            raise UserError(f"--track {self.name}: {error}{self.login}") from None
        durable.write(str(id_file), started.encode())
        self._works = True

    def __call__(self, event: Event) -> None:
        if event["event"] in GROUPS:
            self._try(self._log, event["step"], dict(numbers(event)))

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        if images or histograms:
            self._try(self._show, step, images, histograms)

    def close(self) -> None:
        self._try(self._finish)

    def _try(self, call: Callable[..., None], *values: Any) -> None:
        """Call a function of the package; the run goes on without it when it fails, as where its server is gone."""
        try:
            if self._works:
                call(*values)
        except Exception as error:  # as above
            self._works = False
            message = f"warning: --track {self.name}: {error}; the run goes on without it"
            print(printable(message), file=sys.stderr, flush=True)

    def _start(self, folder: str, known: str | None, project: str, recipe: dict[str, Any], **options: str) -> str:
        """Return the identifier of the new run, or of the `known` one that goes on."""
        name = _title(folder)
        return self._package.init(project=project, name=name, config=recipe, id=known, resume="allow", **options).id

    def _log(self, step: int, values: dict[str, Any]) -> None:
        self._package.log(values, step=step)

    def _show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        shown = {name: self._package.Image(pixels) for name, pixels in images.items()}
        if hasattr(self._package, "Histogram"):  # SwanLab has none
            bars = {name: self._package.Histogram(np_histogram=tuple(each)) for name, each in histograms.items()}
            shown.update(bars)
        self._log(step, shown)

    def _finish(self) -> None:
        self._package.finish()


class WeightsAndBiases(Tracker):
    name = "wandb"
    login = " (`wandb login`, or export WANDB_MODE=offline)"

    def _start(self, folder: str, known: str | None, project: str, recipe: dict[str, Any], **options: str) -> str:
        started = super()._start(folder, known, project, recipe, dir=folder)
        self._package.define_metric("*", step_metric="step")  # its own steps cannot go back after a kill
        return started

    def _log(self, step: int, values: dict[str, Any]) -> None:
        self._package.log({**values, "step": step})


class SwanLab(Tracker):
    name = "swanlab"
    login = " (`swanlab login`, or export SWANLAB_MODE=offline)"


class Trackio(Tracker):
    """trackio, which finds a run by its name."""

    name = "trackio"

    def _start(self, folder: str, known: str | None, project: str, recipe: dict[str, Any], **options: str) -> str:
        name = known or f"{_title(folder)}-{uuid.uuid4().hex[:8]}"
        self._package.init(project=project, name=name, config=recipe, resume="allow")
        return name


class MLflow(Tracker):
    name = "mlflow"

    def _start(self, folder: str, known: str | None, project: str, recipe: dict[str, Any], **options: str) -> str:
        self._package.set_experiment(project)
        run = self._package.start_run(run_id=known, run_name=_title(folder))
        if not known:  # parameters of a run cannot change
            self._package.log_params(recipe)
        return run.info.run_id

    def _log(self, step: int, values: dict[str, Any]) -> None:
        self._package.log_metrics({NOT_IN_NAMES.sub("_", name): value for name, value in values.items()}, step=step)

    def _show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        for name, pixels in images.items():
            self._package.log_image(pixels, key=NOT_IN_NAMES.sub("_", name), step=step)

    def _finish(self) -> None:
        self._package.end_run()


TRACKERS: Mapping[str, type[Tracker]] = {each.name: each for each in (WeightsAndBiases, MLflow, SwanLab, Trackio)}


def projects(words: Sequence[str]) -> dict[str, str]:
    found = dict[str, str]()
    for word in words:
        name, _, project = word.partition(":")
        if name not in TRACKERS:
            raise UserError(f"--track {word}: there is no {name!r}{known_names(name, list(TRACKERS))}")
        if name in found:
            raise UserError(f"--track {word}: {name} is given twice; name it once")
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {word}: the package is not installed: pip install {name}")
        found[name] = project or DEFAULT_PROJECT
    return found


def _title(folder: str) -> str:
    return os.path.basename(os.path.abspath(folder))
