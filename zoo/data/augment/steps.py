"""The value of data.augment, and the augmentations of a split, drawn and carried out on its samples.

The value is a list of names of augmentations with their options, in the order in which they are carried out. Options
are keyword arguments with a default, whose annotations say what values are possible, as those of settings do: such as
`p: Annotated[float, Range(low=0, high=1)] = 0.5`. A list has a value at least.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zoo.data.augment import Augmentation, Drawn, Target, albumentations, catalog, find, names
from zoo.data.convert import convert
from zoo.data.errors import known_names
from zoo.data.fields import Range, SettingError, check_value, ranges
from zoo.data.transforms.geometry import RESIZER, Geometry, Size

KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Step(NamedTuple):
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def augmentation(self) -> Augmentation:
        return albumentations.find(self.name) if _is_of_albumentations(self.name) else find(self.name)

    def __str__(self) -> str:
        return self.name + (f"({', '.join(f'{key}={value}' for key, value in self.options)})" if self.options else "")


@dataclass(frozen=True)
class Steps:
    """A list of augmentations, all of whose names and options exist."""

    NOUNS: ClassVar = ("a list of augmentations", "lists of augmentations")

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
        for step in steps[1:]:
            if step.augmentation.is_crop:
                raise ValueError(f"{step.name}: a crop comes first, and there is one at most")
        return cls(steps)

    def plain(self) -> list[Any]:
        return [
            {step.name: {key: list(item) if isinstance(item, tuple) else item for key, item in step.options}}
            if step.options
            else step.name
            for step in self.steps
        ]


def standard(**steps: dict[str, Any] | bool) -> Steps:
    """Return augmentations by name, with their options or none; False leaves one out."""
    options = {name: given if isinstance(given, dict) else {} for name, given in steps.items() if given is not False}
    return Steps(tuple(Step(name, tuple(given.items())) for name, given in options.items()))


def check(steps: Steps | None, kind: str, flip: bool, size: Size) -> None:
    """Check that augmentations suit the samples of a data set.

    Args:
        size: height and width of a training sample.

    Raises:
        ValueError: which do not, as settings classes raise it.
    """
    for step in steps.steps if steps else ():
        if kind not in step.augmentation.kinds:
            suitable = [name for name, known in catalog().items() if kind in known.kinds]
            raise SettingError("augment", f"{step.name} is not for kind {kind}; there are: {', '.join(suitable)}")
        if _is_of_albumentations(step.name):
            try:
                albumentations.try_out(step.name, step.options, size, with_mask=kind == "scene")
            except ValueError as error:
                raise SettingError("augment", str(error)) from None
        if step.name in ("horizontal_flip", *albumentations.MIRRORS) and not flip:
            raise SettingError(
                "augment", f"{step.name} mirrors, which data.flip=false rules out; leave it out, or set data.flip=true"
            )


class Pipeline:
    """The augmentations of a training split. It keeps no state between samples.

    Args:
        standard: augmentations where data.augment gives none. A crop among them is kept where data.augment has none.

    Attributes:
        crop: (size of a stored image, target, generator) -> Geometry; None for data sets without one.
        is_geometric: whether a geometry is all that happens to images, so that any loader can decode them.
        notes: message for the user, which says what replaces the standard set.
    """

    def __init__(self, settings: Any, standard: Steps):
        given = settings.augment
        steps = [*(standard if given is None else given).steps]
        crops = [step for step in (*steps, *standard.steps) if step.augmentation.is_crop]
        self.crop: Callable[[Size, Target, np.random.Generator], Geometry] | None = _bind(crops[0]) if crops else None
        others = [step for step in steps if not step.augmentation.is_crop]
        self._draws: list[Callable[[Target, np.random.Generator], Drawn | None]] = [_bind(step) for step in others]
        self.is_geometric = [step.name for step in others] in ([], ["horizontal_flip"])
        self.antialias = bool(crops) and settings.antialias
        self.fast = self.antialias and settings.resample == "fast" and find_spec(RESIZER) is not None
        self.notes: tuple[str, ...] = ()
        if given is not None:
            note = f"data.augment: in place of the standard augmentations: {', '.join(map(str, steps)) or 'none'}"
            if settings.loader == "dali" and not self.is_geometric:
                note += "; the reference loader reads the training samples, since DALI does not augment"
            self.notes = (note,)
        if self.antialias and settings.resample == "fast" and not self.fast:
            self.notes += ("data.resample=fast: Pillow resizes, more slowly, since cykooz-resizer is not installed",)

    def draw_crop(self, size: Size, target: Target, rng: np.random.Generator) -> tuple[Geometry, list[Drawn]]:
        """Draw the crop and the mirror of an image of a size, and what else happens to the pixels of the crop."""
        assert self.crop
        geometry = self.crop(size, target, rng)
        flip, drawn = self.draw(target, rng)
        return geometry._replace(antialias=self.antialias, flip=flip, fast=self.fast), drawn

    def draw(self, target: Target, rng: np.random.Generator) -> tuple[bool, list[Drawn]]:
        """Draw the augmentations that follow the crop.

        Returns:
            Whether the cropped image is mirrored first, and what else happens to it.
        """
        drawn = [step for step in (draw(target, rng) for draw in self._draws) if step]
        if drawn and drawn[0].mirrored:
            return True, drawn[1:]
        return False, drawn


def on_image(image: np.ndarray, drawn: Iterable[Drawn]) -> np.ndarray:
    """Carry out draws on an image, uint8 RGB (H, W, 3)."""
    for step in drawn:
        image = step.image(image)
    return image


def on_frames(frames: np.ndarray, drawn: Sequence[Drawn]) -> np.ndarray:
    """Carry out the same draws on every frame of a clip, uint8 (T, H, W, 3)."""
    return np.stack([on_image(frame, drawn) for frame in frames]) if drawn else frames


def on_label(label: np.ndarray, drawn: Iterable[Drawn]) -> np.ndarray:
    """Carry out draws on the mask of a scene, uint8 (H, W)."""
    for step in drawn:
        label = step.label(label) if step.label else label
    return label


def _bind(step: Step) -> Callable[..., Any]:
    return partial(step.augmentation.function, **dict(step.options))


def _parse_step(item: Any) -> Step:
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, dict) or len(item) != 1:
        raise ValueError(
            f"expected a name, or a name with its options such as {{rand_augment: {{n: 2}}}}, got {item!r}"
        )
    ((name, given),) = item.items()
    if not _is_of_albumentations(name) and name not in names():
        raise ValueError(f"there is no augmentation {name!r}{known_names(str(name), names())}")
    if not isinstance(given or {}, dict):
        raise ValueError(f"{name}: expected options such as {{p: 0.5}}, got {given!r}")
    if _is_of_albumentations(name):
        return Step(name, albumentations.parse(name, given or {}))
    function = find(name).function
    hints, limits = typing.get_type_hints(function), ranges(function)
    options = [key for key, parameter in inspect.signature(function).parameters.items() if parameter.kind is KEYWORD]
    converted = []
    for key, value in (given or {}).items():
        if key not in options:
            known = known_names(str(key), options) if options else "; there are none"
            raise ValueError(f"{name}: {key}: unknown option{known}")
        try:
            converted.append((key, _convert(value, hints[key], limits.get(key))))
        except ValueError as error:
            raise ValueError(f"{name}: {key}: {error}") from None
    return Step(name, tuple(sorted(converted)))


def _is_of_albumentations(name: Any) -> bool:
    return str(name).startswith(albumentations.PREFIX)


def _convert(value: Any, hint: Any, limits: Range | None) -> Any:
    converted = convert(value, hint)
    if converted == ():
        raise ValueError("expected a list of one value or more, got []")
    if limits:
        check_value(converted, limits)
    return converted
