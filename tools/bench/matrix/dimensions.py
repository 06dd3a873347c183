"""What a matrix multiplies: recipes, frameworks, precisions, batches, worlds and variants."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.matrix.cases import BASE, OTHER, Case, Recipe, Variant, World
from zoo.config import loader
from zoo.config.convert import plain
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.run import cli, schedule

OWN_KEYS = ("framework", "out", "train.precision", "train.global_batch")  # of a recipe, that the matrix chooses
LONG_RUN = 1_000_000  # epochs or steps


class Dimensions(NamedTuple):
    """What is multiplied to the cases of a matrix.

    Attributes:
        batches: samples per process; empty for those of the recipes.
        find_batch: whether the largest batch that fits is a further one.
    """

    variants: Sequence[Variant]
    recipes: Sequence[Recipe]
    frameworks: Sequence[str]
    precisions: Sequence[str]
    batches: Sequence[int]
    find_batch: bool
    worlds: Sequence[World]

    @property
    def sets_batch(self) -> bool:
        """Whether batches are not those of the recipes."""
        return bool(self.batches) or self.find_batch


def cases_of(dimensions: Dimensions, overrides: Sequence[str]) -> list[Case]:
    """Return all cases of a matrix; where the batch is still to be found, it is None.

    Raises:
        UserError: a recipe is wrong.
    """
    cases = []
    for recipe in dimensions.recipes:
        for framework in dimensions.frameworks:
            for precision in dimensions.precisions:
                for world in dimensions.worlds:
                    batches: list[int | None] = [*dimensions.batches]
                    batches += [None] if dimensions.find_batch else []
                    if not batches:
                        train = resolve(recipe, framework, precision, overrides).config.train
                        batches.append(schedule.batch_plan(train, world.size).batch)
                    cases += [
                        Case(variant, recipe, framework, precision, batch, world, dimensions.sets_batch, batch is None)
                        for batch in batches
                        for variant in dimensions.variants
                    ]
    return cases


def resolve(recipe: Recipe, framework: str, precision: str, overrides: Sequence[str]) -> cli.Request:
    """Return the resolved recipe of a case."""
    return cli.request(recipe.path, [*overrides, f"train.precision={precision}"], framework=framework)


def read_recipes(paths: Sequence[str], overrides: Sequence[str]) -> list[Recipe]:
    """Return the recipes, with the name of the model as their folder where no two have the same model.

    Raises:
        UserError: a recipe is wrong, two have the same name, or an override changes what the matrix chooses.
    """
    for key in loader.overrides(overrides):
        if key in OWN_KEYS:
            raise UserError(f"-o {key}: the matrix chooses it; see --frameworks, --precisions, --batches and --out")
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
    variants = [Variant(BASE)] if words else [Variant("")]
    for word in words:
        mark = next((character for character in word if character in ":="), "")
        name, _, text = word.partition(mark) if mark else (word, "", "")
        if not name.replace("-", "").isalnum() or not text.strip():
            raise UserError(f"--variant {word}: expected NAME:OPTIONS OF TRAIN.PY or NAME=FOLDER OF A CHECKOUT")
        if name in [variant.name for variant in variants]:
            raise UserError(f"--variant {name}: this name is taken")
        if mark == ":":
            variants.append(Variant(name, options=tuple(_split(word, text))))
            continue
        if not is_checkout(text):
            raise UserError(f"--variant {word}: {Path(text).resolve()} has no train.py")
        variants.append(Variant(name, Path(text).resolve()))
    return variants


def describe(dimensions: Dimensions, overrides: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a matrix as JSON types: a matrix that differs in it cannot be continued.

    settings: further settings that runs must have in common.
    """
    return {
        "recipes": {recipe.name: _values(recipe, overrides) for recipe in dimensions.recipes},
        "frameworks": list(dimensions.frameworks),
        "precisions": list(dimensions.precisions),
        "batches": list(dimensions.batches) or ("largest" if dimensions.find_batch else "of the recipe"),
        "find_batch": dimensions.find_batch,
        "worlds": [str(world) for world in dimensions.worlds],
        "variants": {
            variant.name: {"checkout": str(variant.checkout), "options": list(variant.options)}
            for variant in dimensions.variants
            if variant.name not in ("", BASE)
        },
        **settings,
    }


def config_of(case: Case, overrides: Sequence[str]) -> Config:
    """Return the settings of a case."""
    return resolve(case.recipe, case.framework, case.precision, overrides).config


def for_large_batches(case: Case, overrides: Sequence[str]) -> list[str]:
    """Return changes of a recipe with which any batch can be timed: the run is long enough and does not diverge."""
    train = config_of(case, overrides).train
    length = "epochs" if train.epochs else "steps"
    assert case.batch is not None
    return [f"train.{length}={LONG_RUN}", f"optim.base_batch={case.batch * train.accumulate * case.world.size}"]


def _split(word: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"--variant {word}: {error}") from None


def _values(recipe: Recipe, overrides: Sequence[str]) -> dict[str, Any]:
    resolved = cli.request(recipe.path, overrides).resolved
    return {key: plain(entry.value) for key, entry in resolved.items()}
