"""Cases of a matrix: recipes x frameworks x precisions x batches x worlds x variants; the folder of their runs."""

import argparse
import itertools
import json
import os
import random
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo import program
from zoo.bench.options import Cluster
from zoo.bench.report.runs import ATTEMPTS, MATRIX, attempts
from zoo.config import loader
from zoo.config.schema import Config
from zoo.data import durable, extras
from zoo.data.convert import plain
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.run import schedule
from zoo.run.folder import FolderLock, is_run
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Request

CHECKOUT = program.ROOT
BASE, OTHER = "base", "other"  # variants: the command as it stands, and --against CHECKOUT
OWN_KEYS = ("framework", "out", "train.precision", "train.global_batch")  # of a recipe, that the matrix chooses
LONG_RUN = 1_000_000  # epochs or steps


class Recipe(NamedTuple):
    name: str  # file name without suffix
    path: str  # as given to -c
    model: str  # name of its model
    folder: str  # the model's name in folders and files; without `_`, which separates their parts


class Variant(NamedTuple):
    """One of several versions that are compared in one matrix."""

    name: str = ""  # folder of its runs below that of the matrix; "" if the matrix has no variants
    checkout: Path = CHECKOUT  # folder of the train.py to run
    options: tuple[str, ...] = ()  # further options of train.py


class Case(NamedTuple):
    variant: Variant
    recipe: Recipe
    framework: str
    precision: str
    batch: int | None  # samples per process and micro-batch; None until the largest one is found
    world: Cluster
    sets_batch: bool = True  # whether the batch is not that of the recipe
    is_largest: bool = False  # whether the batch is the largest that was found

    def __str__(self) -> str:
        return " ".join(word for word in (title(self), self.variant.name) if word)

    @property
    def group(self) -> "Case":
        """The case without its variant, equal for all variants of a case."""
        return self._replace(variant=Variant())

    def stem(self, out: Path, run: int | str) -> Path:
        """Return the folder of a run in DLPerf's layout; the console output lies beside it, with the suffix .log."""
        folder = out / self.variant.name / self.framework / self.recipe.folder / f"bz{self.batch}"
        name = f"{self.recipe.folder}_b{self.batch}_{self.precision}_{run}"
        return folder / f"{self.world.hosts}n{self.world.cards}g" / name


def title(case: Case) -> str:
    words = [case.recipe.name, case.framework, case.precision, str(case.world)]
    return " ".join(words + ([] if case.batch is None else [f"batch {case.batch}"]))


def expand(arguments: argparse.Namespace, recipes: Sequence[Recipe], variants: Sequence[Variant]) -> list[Case]:
    """Return all cases of a matrix; where the batch is still to be found, it is None."""
    sets_batch = bool(arguments.batches) or arguments.find_batch
    cases = []
    for recipe, framework, precision in itertools.product(recipes, arguments.frameworks, arguments.precisions):
        train = resolve(recipe, framework, precision, arguments.override).config.train
        for world in arguments.worlds:
            batches = [*arguments.batches, *([None] if arguments.find_batch else [])]
            batches = batches or [schedule.batch_plan(train, world.size).batch]
            cases += [
                Case(variant, recipe, framework, precision, batch, world, sets_batch, batch is None)
                for batch, variant in itertools.product(batches, variants)
            ]
    return cases


def impossible(cases: Sequence[Case], hosts: int) -> dict[Case, str]:
    """Return why cases cannot run here, by the number of hosts; those that can are left out."""
    found = {}
    for case in cases:
        if not extras.is_installed(case.framework):
            found[case] = extras.missing(case.framework)
        elif case.world.hosts > hosts:
            found[case] = f"{case.world} needs {case.world.hosts} hosts, --hosts names {hosts}"
    return found


def shuffled(cases: Sequence[Case], round_number: int) -> list[list[Case]]:
    """Return the cases of a round in an order that depends on its number alone, the variants of a case together."""
    rng = random.Random(round_number)
    groups: dict[Case, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    order = list(groups.values())
    rng.shuffle(order)
    for group in order:
        rng.shuffle(group)
    return order


def resolve(recipe: Recipe, framework: str, precision: str, overrides: Sequence[str]) -> Request:
    return resolve_recipe(Options(recipe.path, [*overrides, f"train.precision={precision}"], framework=framework))


def config_of(case: Case, overrides: Sequence[str]) -> Config:
    return resolve(case.recipe, case.framework, case.precision, overrides).config


def for_large_batches(case: Case, overrides: Sequence[str]) -> list[str]:
    """Return changes of a recipe with which any batch can be timed: the run is long enough and does not diverge."""
    train = config_of(case, overrides).train
    length = "epochs" if train.epochs else "steps"
    assert case.batch is not None
    return [f"train.{length}={LONG_RUN}", f"optim.base_batch={case.batch * train.accumulate * case.world.size}"]


def read_recipes(paths: Sequence[str], overrides: Sequence[str]) -> list[Recipe]:
    """Return the recipes, with the name of the model as their folder where no two have the same model."""
    for key in loader.overrides(overrides):
        if key in OWN_KEYS:
            raise UserError(f"-o {key}: the matrix chooses it; see --frameworks, --precisions, --batches and --out")
    paths = [loader.find_recipe(path) for path in paths]
    names = [Path(path).stem for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"-c: two recipes are called {name}; give each a name of its own")
    models = [str(resolve_recipe(Options(path, overrides)).resolved["model.name"].value) for path in paths]
    folders = [
        model if models.count(model) == 1 else name.replace("_", "-") for model, name in zip(models, names, strict=True)
    ]
    return [Recipe(*fields) for fields in zip(names, paths, models, folders, strict=True)]


def is_checkout(folder: str) -> bool:
    return Path(folder, "train.py").exists()


def read_variants(words: Sequence[str], against: str | None = None) -> list[Variant]:
    """Read --variant NAME:OPTIONS and NAME=CHECKOUT; with any, the command as it stands is the variant `base`.

    A checkout as the value of --against is the variant `other`.
    """
    if against and is_checkout(against):
        return [Variant(BASE), Variant(OTHER, Path(against).resolve())]
    variants = [Variant(BASE)] if words else [Variant()]
    for word in words:
        mark = next((character for character in word if character in ":="), ":")
        name, _, text = word.partition(mark)
        is_known = bool(text.strip()) if mark == ":" else is_checkout(text)
        if not name.replace("-", "").isalnum() or not is_known or name in [variant.name for variant in variants]:
            raise UserError(
                f"--variant {word}: expected NAME:OPTIONS OF TRAIN.PY or NAME=FOLDER OF A CHECKOUT, and another name"
            )
        with parsing(f"--variant {word}: these are no options"):
            options = tuple(shlex.split(text)) if mark == ":" else ()
        variants.append(Variant(name, CHECKOUT if mark == ":" else Path(text).resolve(), options))
    return variants


def describe(
    arguments: argparse.Namespace, recipes: Sequence[Recipe], variants: Sequence[Variant], code: str
) -> dict[str, Any]:
    """Return what identifies a matrix as JSON types: a matrix that differs in it cannot be continued."""
    resolved = {
        recipe.name: resolve_recipe(Options(recipe.path, arguments.override)).resolved.items() for recipe in recipes
    }
    same = ("frameworks", "precisions", "find_batch", "drop", "count", "device", "hosts", "launch")
    return {
        "recipes": {name: {key: plain(entry.value) for key, entry in found} for name, found in resolved.items()},
        "batches": arguments.batches,
        "worlds": [str(world) for world in arguments.worlds],
        "variants": {
            variant.name: {"checkout": str(variant.checkout), "options": list(variant.options)}
            for variant in variants
            if variant.name not in ("", BASE)
        },
        **{name: getattr(arguments, name) for name in same},
        "code (a digest of train.py, zoo and data)": code,
    }


class Folder:
    """The folder of a matrix, which is made if need be, and in `attempts` what has been tried so far, in order."""

    def __init__(self, path: Path, description: Mapping[str, Any]):
        self.path = path
        recorded = require_same(path, description)
        try:
            durable.make_folders(str(path))
            self._lock = FolderLock()
            self._lock.acquire(str(path))
            if recorded is None:
                content = json.dumps(description, indent=1) + "\n"
                durable.replace(str(path / MATRIX), content.encode(), str(path / f"{MATRIX}.writing"))
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to ({error.strerror})") from None
        self.attempts = attempts(path)
        if self.attempts and not (path / ATTEMPTS).read_bytes().endswith(b"\n"):
            self._append("")  # ends a line that a kill has truncated

    def close(self) -> None:
        """Let other processes write to the folder."""
        self._lock.release()

    def add(self, kind: str, case: Case, **values: Any) -> None:
        """Append an attempt to the journal, and make it durable."""
        entry = {"kind": kind, "case": str(case), **values}
        self.attempts.append(entry)
        self._append(json.dumps(entry))

    def _append(self, line: str) -> None:
        with open(self.path / ATTEMPTS, "a", encoding="utf-8", opener=durable.regular) as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, kind: str, case: Case) -> list[dict[str, Any]]:
        return [entry for entry in self.attempts if entry["kind"] == kind and entry["case"] == str(case)]

    def failure(self, case: Case) -> str | None:
        """Return why a case has failed; None if it has not, or has run since."""
        entries = [e for e in self.attempts if e["case"] == str(case) and e["kind"] in ("failure", "run")]
        return entries[-1].get("reason") if entries else None

    def forget(self, kind: str) -> None:
        """Drop the attempts of a kind, in memory alone: what follows in the journal replaces them."""
        self.attempts = [entry for entry in self.attempts if entry["kind"] != kind]


def recorded_matrix(path: Path) -> dict[str, Any] | None:
    """Return what identifies the matrix in a folder; None if there is none."""
    if not (path / MATRIX).exists():
        return None
    with parsing(f"{path / MATRIX}: cannot be read", "choose another folder"):
        return dict(regular.load_json(str(path / MATRIX)))


def require_same(path: Path, description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what identifies the matrix in a folder; None if it has none. Raises UserError if it holds another one."""
    recorded = recorded_matrix(path)
    if recorded is None and is_run(str(path)):
        raise UserError(f"--out {path}: this folder holds something else; choose a new one")
    if recorded is not None and (changed := differences(recorded, description)):
        lines = "\n  ".join(changed)
        raise UserError(f"--out {path}: this folder holds another matrix; choose a new one. What differs:\n  {lines}")
    return recorded


def differences(recorded: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return `key: old -> new` for every value that differs."""
    found = []
    for key in dict.fromkeys([*recorded, *current]):
        old, new = recorded.get(key, "absent"), current.get(key, "absent")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}: ")
        elif old != new:
            found.append(f"{prefix}{key}: {old} -> {new}")
    return found


def clear(run: Path) -> None:
    """Remove what an interrupted run has left."""
    shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(f"{run}.ranks", ignore_errors=True)
    run.parent.mkdir(parents=True, exist_ok=True)
