"""What a split of a data set holds, as far as lists, folders and file sizes tell."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Inventory(NamedTuple):
    """Samples of a split, by index below `samples`.

    Attributes:
        name: gives the path of a sample; it begins with the folder of its split where there is one.
        size: gives the bytes of its file, -1 if the file is missing; None where a sample is no single file.
        digest: gives a digest of its file (data/contents.py), equal for equal files; None as for size.
        classes: class names by label, or a range where classes have numbers only.
        labels: int64 (samples,), -1 for a label that cannot be read; None where samples have no class of their own, or
            where counting them would take too long.
        uncounted: why there are no labels, for the log; "" where samples have none.
        pixels: of every class, int64 (classes,), where all masks were read; None otherwise.
        may_miss: whether classes without a sample are normal here, because the data do not decide what classes there
            are: the recipe or a fixed list does.
        singles_are_normal: whether many classes have one sample, as identities do.
    """

    samples: int
    name: Callable[[int], str]
    classes: Sequence
    size: Callable[[int], int] | None = None
    digest: Callable[[int], bytes] | None = None
    labels: np.ndarray | None = None
    uncounted: str = ""
    pixels: np.ndarray | None = None
    may_miss: bool = False
    singles_are_normal: bool = False

    def class_name(self, label: int) -> str:
        """Return the name of a class, `class 7` where classes have numbers only."""
        name = self.classes[label]
        return name if isinstance(name, str) else f"class {label}"

    def counts(self) -> np.ndarray | None:
        """Return the samples of every class, or the pixels: int64 (classes,); None if neither is known."""
        if self.labels is None:
            return self.pixels
        known = self.labels[(self.labels >= 0) & (self.labels < len(self.classes))]
        return np.bincount(known, minlength=len(self.classes))
