"""The value of data.augment: names of augmentations with their options, in the order in which they are carried out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from zoo.data import augment
from zoo.data.augment.common.options import convert, nearest


class Step(NamedTuple):
    """One augmentation of a list.

    Attributes:
        name: of its module.
        options: that the recipe gives, sorted by name.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def is_crop(self) -> bool:
        """Whether it is a crop."""
        return hasattr(augment.load(self.name), "crop")

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{key}={value}' for key, value in self.options)})" if self.options else "")


@dataclass(frozen=True)
class Steps:
    """A list of augmentations, all of whose names and options exist."""

    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, value: Any) -> "Steps":
        """Parse a list such as `[horizontal_flip, {rand_augment: {n: 2, m: 9}}]`.

        Raises:
            ValueError: what is wrong, and the nearest right name or the possible values.
        """
        if not isinstance(value, list):
            raise ValueError(f"expected a list such as [horizontal_flip, {{rand_augment: {{n: 2}}}}], got {value!r}")
        steps = tuple(_parse_step(item) for item in value)
        for number, step in enumerate(steps):
            if number and step.is_crop:
                raise ValueError(f"{step.name}: a crop comes first, and there is one at most")
        return cls(steps)

    def plain(self) -> list[Any]:
        """Return the list as YAML types."""
        return [
            {step.name: {key: list(item) if isinstance(item, tuple) else item for key, item in step.options}}
            if step.options
            else step.name
            for step in self.steps
        ]


def check(steps: Steps | None, kind: str, flip: bool) -> None:
    """Check that augmentations suit the samples of a data set.

    Args:
        steps: None for the standard set.
        kind: of the samples, one of augment.KINDS.
        flip: data.flip, whether samples may be mirrored.

    Raises:
        ValueError: which do not, as settings classes raise it.
    """
    for step in steps.steps if steps else ():
        if kind not in augment.load(step.name).KINDS:
            raise ValueError(
                f"augment: {step.name} is not for kind {kind}; there are: {', '.join(augment.names(kind))}"
            )
        if step.name == "horizontal_flip" and not flip:
            raise ValueError(
                "augment: horizontal_flip mirrors, which data.flip=false rules out; leave it out, or set data.flip=true"
            )


def _parse_step(item: Any) -> Step:
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, dict) or len(item) != 1:
        raise ValueError(
            f"expected a name, or a name with its options such as {{rand_augment: {{n: 2}}}}, got {item!r}"
        )
    ((name, options),) = item.items()
    known = augment.names()
    if name not in known:
        raise ValueError(f"there is no augmentation {name!r}{nearest(str(name), known)}")
    if not isinstance(options or {}, dict):
        raise ValueError(f"{name}: expected options such as {{p: 0.5}}, got {options!r}")
    module = augment.load(name)
    function = module.crop if hasattr(module, "crop") else module.draw
    try:
        return Step(name, tuple(sorted(convert(function, options or {}).items())))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


Pixels = Callable[[np.ndarray], np.ndarray]


class Target(NamedTuple):
    """The images of a sample when they are augmented: their size in pixels, and their normalization in [0, 1]."""

    width: int
    height: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def mean_bytes(self) -> tuple[int, ...]:
        """The bytes that come closest to 0 after the normalization."""
        return tuple(round(255 * value) for value in self.mean)


class Drawn(NamedTuple):
    """One draw of an augmentation.

    Attributes:
        image: uint8 RGB (H, W, 3), not modified, -> the same shape; called for every frame of a clip.
        label: the same for the mask of a scene, uint8 (H, W); None leaves it as it is.
        mirrored: whether it mirrors horizontally and does nothing else.
    """

    image: Pixels
    label: Pixels | None = None
    mirrored: bool = False
