"""The demo set of faces: drawn persons, a folder each, and pairs of pictures of other persons to verify.

Pose, light, mood, background and clothes are drawn alike for everybody, so pixels in their places tell little. Made at
first use, in seconds, always with the same bytes.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

from data import order
from data.datasets import faces
from data.demo.common import cache, portrait
from data.formats import images

UNSEEN = "unseen"  # the folder of those who are not trained on, and the name of the verification set
QUALITY = 92
SEED = 2026
checksum = faces.checksum


@dataclass(frozen=True)
class Settings(faces.Settings):
    """The `data:` section of a recipe on the portraits."""

    root: str = "datasets/portraits"
    size: int = 48  # pixels, of the files too
    verification: tuple[str, ...] = (f"{UNSEEN}.txt",)
    val_pairs: int = 600  # half of them of one person
    identities: int = 300  # to train on ...
    shots: int = 12  # ... with so many pictures each
    val_identities: int = 60  # others, to verify ...
    val_shots: int = 10
    variation: float = 1.0  # of pose, light and mood; 0: everybody from the front, in the same light

    def __post_init__(self):
        super().__post_init__()
        for key, least in (("size", 16), ("identities", 2), ("shots", 1), ("val_identities", 2), ("val_shots", 2)):
            if getattr(self, key) < least:
                raise ValueError(f"{key}: must be at least {least}")
        if not 0 <= self.variation <= 1.4:
            raise ValueError("variation: must lie in [0, 1.4]")
        most = min(_one_person(self.val_identities, self.val_shots), _two_persons(self.val_identities, self.val_shots))
        if self.val_pairs > 2 * most:
            raise ValueError(
                f"val_pairs: {self.val_identities} identities with {self.val_shots} pictures each give at "
                f"most {2 * most} different pairs, half of one person and half of two"
            )


def load(settings: Settings) -> tuple[faces.FaceSplit, faces.VerificationPairs]:
    """Make the set if it is not there, then load it like any folder of faces."""
    if not os.path.isdir(settings.root):
        make(settings)
    cache.check(settings.root, "portraits", _recipe(settings))
    return faces.load(settings)


def make(settings: Settings) -> None:
    """Write the set to its root; a folder of this name is always whole."""
    s = settings
    shots = {"train": (s.identities, s.shots), UNSEEN: (s.val_identities, s.val_shots)}
    total = sum(people * each for people, each in shots.values())
    print(f"making the demo set in {s.root}: {total} small JPEG files ...", flush=True)

    def fill(folder: str) -> None:
        for split, (people, each) in shots.items():
            for who in range(people):
                os.makedirs(os.path.dirname(os.path.join(folder, _path(split, who, 0))))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda number: _write(folder, split, *divmod(number, each), s), range(people * each)))
        with open(os.path.join(folder, f"{UNSEEN}.txt"), "w", encoding="utf-8") as file:
            file.writelines(" ".join(line) + "\n" for line in _pairs(s))

    cache.write(s.root, "portraits", _recipe(s), fill)


def _recipe(settings: Settings) -> cache.Recipe:
    keys = ("size", "val_pairs", "identities", "shots", "val_identities", "val_shots", "variation")
    return {"version": 1, **{key: getattr(settings, key) for key in keys}}


def _write(root: str, split: str, who: int, shot: int, settings: Settings) -> None:
    person = portrait.person(order.generator(SEED, f"{split} person", who))
    rng = order.generator(SEED, f"{split} {who}", shot)
    pixels = portrait.render(person, portrait.look(rng, settings.variation), rng, settings.size)
    images.write_jpeg(os.path.join(root, _path(split, who, shot)), pixels, QUALITY)


def _path(split: str, who: int, shot: int) -> str:
    return f"{split}/{who:04d}/{shot:03d}.jpg"


def _pairs(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """(picture, picture, 1 or 0), one person and two in turn, no pair twice."""
    people, each, half = settings.val_identities, settings.val_shots, settings.val_pairs // 2
    shots, couples = list(combinations(range(each), 2)), list(combinations(range(people), 2))
    rng = order.generator(SEED, "pairs", 0)
    for one, two in zip(
        rng.choice(_one_person(people, each), half, replace=False),
        rng.choice(_two_persons(people, each), half, replace=False),
    ):
        who, which = divmod(int(one), len(shots))
        yield (*(_path(UNSEEN, who, shot) for shot in shots[which]), "1")
        which, cell = divmod(int(two), each * each)
        yield (*(_path(UNSEEN, *place) for place in zip(couples[which], divmod(cell, each))), "0")


def _one_person(people: int, shots: int) -> int:
    """How many pairs of pictures of one person there are."""
    return people * shots * (shots - 1) // 2


def _two_persons(people: int, shots: int) -> int:
    return people * (people - 1) // 2 * shots * shots
