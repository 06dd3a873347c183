"""Cases of a matrix: recipes x frameworks x precisions x batches x worlds x variants; where their runs lie."""

import argparse
import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo import program
from zoo.bench.options import Cluster
from zoo.config import loader
from zoo.config.convert import plain
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.run import cli, schedule

CHECKOUT = program.ROOT
BASE, OTHER = "base", "other"  # variants: the command as it stands, and --against CHECKOUT
OWN_KEYS = ("framework", "out", "train.precision", "train.global_batch")  # of a recipe, that the matrix chooses
LONG_RUN = 1_000_000  # epochs or steps


class Recipe(NamedTuple):
    """A recipe of the matrix.

    Attributes:
        name: file name without suffix.
        path: as given to -c.
        model: name of its model.
        folder: the model's name in folders and files; without `_`, which separates their parts.
    """

    name: str
    path: str
    model: str
    folder: str


class Variant(NamedTuple):
    """One of several versions that are compared in one matrix.

    Attributes:
        name: folder of its runs below that of the matrix; "" if the matrix has no variants.
        checkout: folder of the train.py to run.
        options: further options of train.py.
    """

    name: str = ""
    checkout: Path = CHECKOUT
    options: tuple[str, ...] = ()


class Case(NamedTuple):
    """What is timed, several times.

    Attributes:
        batch: samples per process and micro-batch; None until the largest one is found.
        sets_batch: whether the batch is not that of the recipe.
        is_largest: whether the batch is the largest that was found.
    """

    variant: Variant
    recipe: Recipe
    framework: str
    precision: str
    batch: int | None
    world: Cluster
    sets_batch: bool = True
    is_largest: bool = False

    def __str__(self) -> str:
        """Return the title of the case."""
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
    """Return the title of a case without its variant."""
    words = [case.recipe.name, case.framework, case.precision, str(case.world)]
    return " ".join(words + ([] if case.batch is None else [f"batch {case.batch}"]))


def expand(arguments: argparse.Namespace, recipes: Sequence[Recipe], variants: Sequence[Variant]) -> list[Case]:
    """Return all cases of a matrix; where the batch is still to be found, it is None.

    Raises:
        UserError: a recipe is wrong.
    """
    sets_batch = bool(arguments.batches) or arguments.find_batch
    cases = []
    for recipe in recipes:
        for framework in arguments.frameworks:
            for precision in arguments.precisions:
                train = resolve(recipe, framework, precision, arguments.override).config.train
                for world in arguments.worlds:
                    batches = [*arguments.batches, *([None] if arguments.find_batch else [])]
                    batches = batches or [schedule.batch_plan(train, world.size).batch]
                    cases += [
                        Case(variant, recipe, framework, precision, batch, world, sets_batch, batch is None)
                        for batch in batches
                        for variant in variants
                    ]
    return cases


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


def resolve(recipe: Recipe, framework: str, precision: str, overrides: Sequence[str]) -> cli.Request:
    """Return the resolved recipe of a case."""
    return cli.request(recipe.path, [*overrides, f"train.precision={precision}"], framework=framework)


def config_of(case: Case, overrides: Sequence[str]) -> Config:
    """Return the settings of a case."""
    return resolve(case.recipe, case.framework, case.precision, overrides).config


def for_large_batches(case: Case, overrides: Sequence[str]) -> list[str]:
    """Return changes of a recipe with which any batch can be timed: the run is long enough and does not diverge."""
    train = config_of(case, overrides).train
    length = "epochs" if train.epochs else "steps"
    assert case.batch is not None
    return [f"train.{length}={LONG_RUN}", f"optim.base_batch={case.batch * train.accumulate * case.world.size}"]


def read_recipes(paths: Sequence[str], overrides: Sequence[str]) -> list[Recipe]:
    """Return the recipes, with the name of the model as their folder where no two have the same model.

    Raises:
        UserError: a recipe is wrong, two have the same name, or an override changes what the matrix chooses.
    """
    for key in loader.overrides(overrides):
        if key in OWN_KEYS:
            raise UserError(f"-o {key}: the matrix chooses it; see --frameworks, --precisions, --batches and --out")
    paths = [loader.find_recipe(path) for path in paths]
    names = [Path(path).stem for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"-c: two recipes are called {name}; give each a name of its own")
    models = [str(cli.request(path, overrides).resolved["model.name"].value) for path in paths]
    folders = [
        model if models.count(model) == 1 else name.replace("_", "-") for model, name in zip(models, names, strict=True)
    ]
    return [Recipe(*fields) for fields in zip(names, paths, models, folders, strict=True)]


def is_checkout(folder: str) -> bool:
    """Return whether a folder is a checkout of this project."""
    return Path(folder, "train.py").exists()


def read_variants(words: Sequence[str], against: str | None = None) -> list[Variant]:
    """Read --variant NAME:OPTIONS and NAME=CHECKOUT; with any, the command as it stands is the variant `base`.

    Args:
        words: values of --variant.
        against: value of --against, which is the variant `other` if it is a checkout.

    Raises:
        UserError: a variant has no name or nothing that is different.
    """
    if against and is_checkout(against):
        return [Variant(BASE), Variant(OTHER, Path(against).resolve())]
    variants = [Variant(BASE)] if words else [Variant()]
    for word in words:
        mark = next((character for character in word if character in ":="), ":")
        name, _, text = word.partition(mark)
        if not name.replace("-", "").isalnum() or not text.strip():
            raise UserError(f"--variant {word}: expected NAME:OPTIONS OF TRAIN.PY or NAME=FOLDER OF A CHECKOUT")
        if name in [variant.name for variant in variants]:
            raise UserError(f"--variant {name}: this name is taken")
        if mark == "=" and not is_checkout(text):
            raise UserError(f"--variant {word}: {Path(text).resolve()} has no train.py")
        try:
            options = tuple(shlex.split(text)) if mark == ":" else ()
        except ValueError as error:
            raise UserError(f"--variant {word}: {error}") from None
        variants.append(Variant(name, CHECKOUT if mark == ":" else Path(text).resolve(), options))
    return variants


def describe(
    arguments: argparse.Namespace, recipes: Sequence[Recipe], variants: Sequence[Variant], code: str
) -> dict[str, Any]:
    """Return what identifies a matrix as JSON types: a matrix that differs in it cannot be continued."""
    resolved = {recipe.name: cli.request(recipe.path, arguments.override).resolved.items() for recipe in recipes}
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
