"""RandomFaceSplit in place of faces, with random labels: measures speed with any number of identities and no file at all.

The inputs of the net are as N(0, 1), in steps of 1/32 and between -4 and 4, since pictures travel as bytes. Picture and
label are functions of the seed and the position alone.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from data.batch import LABEL, Field
from data.datasets.faces import PAIR
from data.stream import LoaderSettings

STEPS = 32  # of a byte in a standard deviation
MIDDLE = 127.5


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on noise."""

    num_classes: int = 85742  # of MS1MV2, as the number of its pictures
    train_images: int = 5822653
    val_pairs: int = 100
    size: int = 112  # pixels, square

    def __post_init__(self):
        super().__post_init__()
        for key, least in (("num_classes", 2), ("train_images", 1), ("val_pairs", 10), ("size", 1)):
            if getattr(self, key) < least:
                raise ValueError(f"{key}: must be at least {least}")


class RandomFaceSplit:
    """One split. Stateless between samples.

    fields of training: `image` uint8 (size, size, 3), `label` int64 (); of validation, where every other pair is called
    one person: `image` uint8 (2, size, size, 3), `label` and `pair` int64 ().
    """

    notes = ()

    def __init__(self, settings: Settings, training: bool):
        self.settings, self.training, self.classes = settings, training, range(settings.num_classes)
        self.views = 1 if training else 2
        self.shape: tuple[int, ...] = (settings.size, settings.size, 3)
        if not training:
            self.shape, self.sets = (2,) + self.shape, (("noise", 0, settings.val_pairs),)
        image = Field("image", self.shape, "uint8", (MIDDLE / 255,) * 3, (STEPS / 255,) * 3)
        self.fields = (image, LABEL) if training else (image, LABEL, PAIR)

    def __len__(self) -> int:
        return self.settings.train_images if self.training else self.settings.val_pairs

    def name(self, index: int) -> str:
        return f"noise {index}"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A picture and a label, uniform over the identities, all drawn."""
        values = rng.standard_normal(self.shape, dtype=np.float32) * STEPS + (MIDDLE + 0.5)
        image = np.clip(values, 0, 255).astype(np.uint8)  # the half: cutting off rounds
        if self.training:
            return {"image": image, "label": np.asarray(rng.integers(self.settings.num_classes), np.int64)}
        return {"image": image, "label": np.asarray(1 - index % 2, np.int64), "pair": np.asarray(index, np.int64)}


def load(settings: Settings) -> tuple[RandomFaceSplit, RandomFaceSplit]:
    """The training split and the pairs; takes neither time nor memory, however many identities there are."""
    return RandomFaceSplit(settings, True), RandomFaceSplit(settings, False)


def checksum(train: RandomFaceSplit, val: RandomFaceSplit) -> str:
    """md5 over the settings that the noise depends on; the seed is the run's."""
    s = train.settings
    return hashlib.md5(f"noise {s.num_classes} {s.train_images} {s.val_pairs} {s.size}".encode()).hexdigest()
