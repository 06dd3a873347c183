"""Random images with random labels in place of faces: a speed test with any number of identities and no files.

The model's inputs are N(0, 1) in steps of 1/32, clipped to [-4, 4], because images are stored as bytes. Image and label
are functions of the seed and the position alone. This module needs numpy only: no OpenCV, no Pillow, no video decoder.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from data.batch import LABEL, PAIR, Field
from data.stream import LoaderSettings

STEPS = 32  # byte values per standard deviation
MIDDLE = 127.5


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on random images."""

    num_classes: int = 85742  # identities and images of MS1MV2
    train_images: int = 5822653
    val_pairs: int = 100
    size: int = 112  # pixels, square

    def __post_init__(self):
        super().__post_init__()
        for key, minimum in (("num_classes", 2), ("train_images", 1), ("val_pairs", 10), ("size", 1)):
            if getattr(self, key) < minimum:
                raise ValueError(f"{key}: must be at least {minimum}")
        if self.cache is not None:
            raise ValueError("cache: random images have no files; leave it out")


class RandomFaceSplit:
    """One split. It keeps no state between samples.

    Training fields: `image` uint8 (size, size, 3), `label` int64 (). Validation fields: `image` uint8
    (2, size, size, 3), `label` int64 () (1 for every other pair), `pair` int64 ().
    """

    notes: tuple[str, ...] = ()

    def __init__(self, settings: Settings, training: bool):
        self.settings, self.training, self.classes = settings, training, range(settings.num_classes)
        self.views = 1 if training else 2
        self.shape: tuple[int, ...] = (settings.size, settings.size, 3)
        if not training:
            self.shape, self.sets = (2,) + self.shape, (("noise", 0, settings.val_pairs),)
        image = Field("image", self.shape, "uint8", (MIDDLE / 255,) * 3, (STEPS / 255,) * 3)
        self.fields: tuple[Field, ...] = (image, LABEL) if training else (image, LABEL, PAIR)

    def __len__(self) -> int:
        return self.settings.train_images if self.training else self.settings.val_pairs

    def name(self, index: int) -> str:
        return f"noise {index}"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw an image and a label, uniform over the identities."""
        values = rng.standard_normal(self.shape, dtype=np.float32) * STEPS + (MIDDLE + 0.5)
        image = np.clip(values, 0, 255).astype(np.uint8)  # + 0.5, because the conversion truncates
        if self.training:
            return {"image": image, "label": np.asarray(rng.integers(self.settings.num_classes), np.int64)}
        return {"image": image, "label": np.asarray(1 - index % 2, np.int64), "pair": np.asarray(index, np.int64)}

    plan = sample  # nothing is left to a loader


def load(settings: Settings) -> tuple[RandomFaceSplit, RandomFaceSplit]:
    """Return the training split and the pairs; time and memory do not depend on the number of identities."""
    return RandomFaceSplit(settings, True), RandomFaceSplit(settings, False)


def checksum(train: RandomFaceSplit, val: RandomFaceSplit) -> str:
    """Return the md5 of the settings that the images depend on; the seed belongs to the run."""
    s = train.settings
    return hashlib.md5(f"noise {s.num_classes} {s.train_images} {s.val_pairs} {s.size}".encode()).hexdigest()
