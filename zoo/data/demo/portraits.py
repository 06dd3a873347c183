"""The demo set of faces: drawn persons in a folder each, and pairs of images of other persons for verification.

Pose, light, expression, background and clothes have the same distribution for all persons, so pixel-wise comparison
hardly identifies anyone. The set is generated at first use, in seconds, always with the same bytes.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Annotated

from zoo.data import order
from zoo.data.datasets import faces
from zoo.data.datasets.verification import FOLDS
from zoo.data.demo import common, portrait_drawing
from zoo.data.fields import Classes, Count, Doc, FilePath, Range, SettingError
from zoo.data.formats import images

UNSEEN = "unseen"  # folder of the persons that are not trained on, and name of the verification set
QUALITY = 92
SEED = 2026
describe, files_of = faces.describe, faces.files_of


@dataclass(frozen=True)
class Settings(faces.Settings):
    root: FilePath = "datasets/portraits"
    size: Annotated[int, Range(low=16), Doc("Side of the square images and of the generated files, in pixels.")] = 48
    verification: tuple[FilePath, ...] = (f"{UNSEEN}.txt",)
    val_pairs: Annotated[
        int, Range(low=FOLDS), Doc("Pairs of the verification set, half of them of the same person.")
    ] = 600
    identities: Annotated[Classes, Doc("Persons to train on.")] = 300
    shots: Annotated[Count, Doc("Images of each person to train on.")] = 12
    val_identities: Annotated[Classes, Doc("Persons of the verification set, who are others.")] = 60
    val_shots: Annotated[int, Range(low=2), Doc("Images of each person of the verification set.")] = 10
    variation: Annotated[
        float,
        Range(low=0, high=1.4),
        Doc("Variation of pose, light and expression; 0: all from the front, in the same light."),
    ] = 1.0

    def __post_init__(self):
        super().__post_init__()
        counts = self.val_identities, self.val_shots
        available = min(_count_same_pairs(*counts), _count_different_pairs(*counts))
        if self.val_pairs > 2 * available:
            raise SettingError(
                "val_pairs",
                f"{self.val_identities} identities with {self.val_shots} images each give at "
                f"most {2 * available} distinct pairs, half of them of the same person",
            )


def load(settings: Settings) -> tuple[faces.FaceSplit, faces.VerificationPairs]:
    """Generate the set if it does not exist, then open it like any folder of faces."""
    return faces.load(replace(settings, root=make(settings)))


def make(settings: Settings) -> str:
    """Write the set to its root, unless it is there; return its folder (see common.write)."""
    s = settings
    sizes = {"train": (s.identities, s.shots), UNSEEN: (s.val_identities, s.val_shots)}

    def fill(folder: str) -> None:
        for split, (identities, shots) in sizes.items():
            for identity in range(identities):
                os.makedirs(os.path.dirname(os.path.join(folder, _path(split, identity, 0))))
            faces_of_split = [(identity, shot) for identity in range(identities) for shot in range(shots)]
            common.map_threads(partial(_write, folder, split, s), faces_of_split)
        with open(os.path.join(folder, f"{UNSEEN}.txt"), "w", encoding="utf-8") as file:
            file.writelines(" ".join(line) + "\n" for line in _pairs(s))

    total = sum(identities * shots for identities, shots in sizes.values())
    keys = ("size", "val_pairs", "identities", "shots", "val_identities", "val_shots", "variation")
    recipe = {"version": 1, **{key: getattr(s, key) for key in keys}}
    return common.write(s.root, "portraits", recipe, f"{total} small JPEG files", fill)


def _write(root: str, split: str, settings: Settings, face: tuple[int, int]) -> None:
    identity, shot = face
    person = portrait_drawing.random_person(order.generator(SEED, f"{split} person", identity))
    rng = order.generator(SEED, f"{split} {identity}", shot)
    pixels = portrait_drawing.render(person, portrait_drawing.random_view(rng, settings.variation), rng, settings.size)
    images.write_jpeg(os.path.join(root, _path(split, identity, shot)), pixels, QUALITY)


def _path(split: str, identity: int, shot: int) -> str:
    return f"{split}/{identity:04d}/{shot:03d}.jpg"


def _pairs(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Draw (path, path, 1 or 0), alternately of the same and of different persons, no pair twice."""
    identities, shots, half = settings.val_identities, settings.val_shots, settings.val_pairs // 2
    shot_pairs, identity_pairs = list(combinations(range(shots), 2)), list(combinations(range(identities), 2))
    rng = order.generator(SEED, "pairs", 0)
    for same, different in zip(
        rng.choice(_count_same_pairs(identities, shots), half, replace=False),
        rng.choice(_count_different_pairs(identities, shots), half, replace=False),
    ):
        identity, index = divmod(int(same), len(shot_pairs))
        first, second = shot_pairs[index]
        yield _path(UNSEEN, identity, first), _path(UNSEEN, identity, second), "1"
        index, cell = divmod(int(different), shots * shots)
        (first_identity, second_identity), (first, second) = identity_pairs[index], divmod(cell, shots)
        yield _path(UNSEEN, first_identity, first), _path(UNSEEN, second_identity, second), "0"


def _count_same_pairs(identities: int, shots: int) -> int:
    return identities * shots * (shots - 1) // 2


def _count_different_pairs(identities: int, shots: int) -> int:
    return identities * (identities - 1) // 2 * shots * shots
