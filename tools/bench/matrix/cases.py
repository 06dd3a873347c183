"""Cases of a matrix: what each runs, where, in which order."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zoo import program

CHECKOUT = program.ROOT
BASE = "base"  # the variant that is the command as it stands
OTHER = "other"  # the variant of --against CHECKOUT


class World(NamedTuple):
    """Processes of a run."""

    hosts: int
    per_host: int

    def __str__(self) -> str:
        return f"{self.hosts}x{self.per_host}"

    @property
    def size(self) -> int:
        return self.hosts * self.per_host


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

    name: str
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
    world: World
    sets_batch: bool = True
    is_largest: bool = False

    def __str__(self) -> str:
        """Return the title of the case."""
        words = [self.recipe.name, self.framework, self.precision, str(self.world)]
        words += [] if self.batch is None else [f"batch {self.batch}"]
        return " ".join(words + ([self.variant.name] if self.variant.name else []))

    def stem(self, out: Path, run: int | str) -> Path:
        """Return the folder of a run in DLPerf's layout; the console output lies beside it, with the suffix .log."""
        folder = out / self.variant.name / self.framework / self.recipe.folder / f"bz{self.batch}"
        name = f"{self.recipe.folder}_b{self.batch}_{self.precision}_{run}"
        return folder / f"{self.world.hosts}n{self.world.per_host}g" / name


def shuffled(cases: Sequence[Case], round_number: int) -> list[list[Case]]:
    """Return the cases of a round in an order that depends on its number alone, the variants of a case together."""
    rng = random.Random(round_number)
    groups: dict[Case, list[Case]] = {}
    for case in cases:
        groups.setdefault(case._replace(variant=Variant("")), []).append(case)
    order = list(groups.values())
    rng.shuffle(order)
    for group in order:
        rng.shuffle(group)
    return order
