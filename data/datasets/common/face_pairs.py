"""Pairs of faces, as a validation split."""

from collections.abc import Sequence

import numpy as np

from zoo.data.audit import Inventory
from zoo.data.batch import LABEL, PAIR, Field
from zoo.data.datasets.common import verification
from zoo.data.datasets.common.face_settings import MEAN, Settings
from zoo.data.datasets.common.protocol import Protocol, root_name
from zoo.data.datasets.common.verification import PairSet
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import face_files
from zoo.data.pending import Pending, PlannedSample
from zoo.data.transforms.geometry import Geometry

STANDARD_SIZE = 112  # pixels, of the images of all published verification sets


class VerificationPairs:
    """The validation split: the pairs of all verification sets, concatenated.

    Fields: `image` uint8 (2, size, size, 3) RGB, `label` int64 (): 1 for the same person, 0 for different persons;
    `pair` int64 (): index of the pair.

    Attributes:
        sets: (name, index of the first pair, number of pairs) of every verification set.
    """

    views = 2
    notes: tuple[str, ...] = ()

    def __init__(self, settings: Settings, pair_sets: Sequence[PairSet], classes: Sequence):
        self.settings, self.pair_sets, self.classes = settings, pair_sets, classes
        counts = [len(pair_set.same) for pair_set in pair_sets]
        self.offsets = np.cumsum([0] + counts)
        self.sets = tuple(
            (pair_set.name, int(first), count) for pair_set, first, count in zip(pair_sets, self.offsets, counts)
        )
        shape = (2, settings.size, settings.size, 3)
        self.fields = (Field("image", shape, "uint8", MEAN, settings.std), LABEL, PAIR)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def protocol(self) -> Protocol:
        """The evaluation: the verification sets by name, and the side of the images where it is not 112."""
        names = "+".join(name for name, _, _ in self.sets)
        if names == verification.HELD_OUT:  # drawn from the training set
            names = f"{root_name(self.settings)}-{names}"
        return Protocol(names, "" if self.settings.size == STANDARD_SIZE else f"@{self.settings.size}")

    def name(self, index: int) -> str:
        pair_set, number = self._locate(index)
        images = ", ".join(pair_set.source.name(image) for image in pair_set.pairs[number])
        return f"{pair_set.name} pair {number} ({images})"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode both images. Raises BadSample."""
        pair_set, number = self._locate(index)
        return {
            "image": np.stack([self._decode(pair_set, image) for image in pair_set.pairs[number]]),
            "label": np.asarray(pair_set.same[number], np.int64),
            "pair": np.asarray(index, np.int64),
        }

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read a pair, and leave its pixels to the loader. Raises BadSample."""
        pair_set, number = self._locate(index)
        files = [
            face_files.read_plain(pair_set.source.encoded(image), self.settings.size)
            for image in pair_set.pairs[number]
        ]
        plain = tuple(file for file in files if file is not None)
        if len(plain) < len(files):
            return {**self.sample(index, rng)}
        return {
            "image": Pending(plain, Geometry(), stacked=True),
            "label": np.asarray(pair_set.same[number], np.int64),
            "pair": np.asarray(index, np.int64),
        }

    def inventory(self, deep: bool) -> Inventory:
        """Return the images of all pairs, for checks; deep: whether packs are read."""
        images = [(pair_set.source, image) for pair_set in self.pair_sets for image in np.unique(pair_set.pairs)]

        def name(index: int) -> str:
            source, image = images[index]
            return source.name(image)

        def size(index: int) -> int:
            source, image = images[index]
            return source.size(image)

        def digest(index: int) -> bytes:
            source, image = images[index]
            return source.digest(image)

        if not deep and any(pair_set.source.in_pack for pair_set in self.pair_sets):
            return Inventory(len(images), name, self.classes)
        return Inventory(len(images), name, self.classes, size, digest)

    def _decode(self, pair_set: PairSet, image: int) -> np.ndarray:
        try:
            return face_files.decode(pair_set.source.encoded(image), self.settings.size, self.settings.resize)
        except BadSample as error:
            raise BadSample(f"{pair_set.source.name(image)}: {error}") from None

    def _locate(self, index: int) -> tuple[PairSet, int]:
        """Return the verification set of a pair, and the index of the pair in it."""
        number = int(np.searchsorted(self.offsets, index, side="right")) - 1
        return self.pair_sets[number], index - int(self.offsets[number])


def check_all_readable(pair_set: PairSet, settings: Settings) -> None:
    """Check that all images of a verification set can be opened."""
    for image in np.unique(pair_set.pairs):
        try:
            with face_files.open_face(pair_set.source.encoded(image), settings.size, settings.resize):
                pass
        except BadSample as error:
            raise UserError(
                f"verification set {pair_set.name}: {pair_set.source.name(image)}: {error}; fix it, or count "
                "unreadable pairs as wrong with -o data.eval_bad=wrong"
            ) from None
