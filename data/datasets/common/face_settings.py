"""Settings of faces."""

from dataclasses import dataclass
from typing import Literal

from zoo.data import mixing
from zoo.data.augment.common import steps
from zoo.data.augment.common.steps import Steps
from zoo.data.datasets.common import verification
from zoo.data.settings import LoaderSettings

MEAN = (0.5, 0.5, 0.5)
STD = {"insightface": MEAN, "plsc": (128 / 255,) * 3}  # (x - 127.5) / 127.5 and (x - 127.5) / 128


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on faces."""

    root: str = "datasets/ms1m"
    format: Literal["auto", "rec", "list", "folder"] = "auto"  # auto: a pack, else a list, else folders
    train: str | None = None  # in root: default train.rec, label.txt, or the folder train, else root itself
    allow_outside_root: bool = False  # let lists name files by absolute paths or with `..`
    num_classes: int | None = None  # default: as stored in the pack, or the largest label of the list + 1
    size: int = 112  # pixels, square
    resize: bool = False  # resize images of another size; otherwise they are unreadable
    normalisation: Literal["insightface", "plsc"] = "insightface"
    flip: bool = True  # mirror half of the training images
    augment: Steps | None = None  # augmentations in place of flip (docs/data.md); null: flip alone
    verification: tuple[str, ...] = ()  # in root: lfw.bin, or lists of pairs such as lfw/pairs.txt
    val_fraction: float = 0.05  # without verification: hold out this fraction of the identities, the last ones ...
    val_pairs: int = 6000  # ... and draw at most this number of pairs from them

    def __post_init__(self):
        super().__post_init__()
        if self.size < 1:
            raise ValueError("size: must be at least 1")
        steps.check(self.augment, "face", self.flip)
        mixing.refuse(self, "a face shows one person, and cannot be mixed")
        if self.num_classes is not None and self.num_classes < 2:
            raise ValueError("num_classes: must be at least 2")
        if not 0 < self.val_fraction <= 0.5:
            raise ValueError("val_fraction: must be a fraction above 0 and at most 0.5")
        if self.val_pairs < verification.FOLDS or self.val_pairs % 2:
            raise ValueError(f"val_pairs: must be an even number of at least {verification.FOLDS}")

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of the normalization, for pixels in [0, 1]."""
        return STD[self.normalisation]
