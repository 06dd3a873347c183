"""Transforms of albumentations as augmentations, by the names of their classes: `albumentations.CLAHE`.

A draw is a seed. The transform draws its own numbers from it, the same for every frame of a clip and for the mask of a
scene. Each thread has transforms of its own, since they keep their generator.

Without albumentations, nothing is checked here, and the first sample that is augmented is an error: what was trained
with it is evaluated, predicts and is exported without it.
"""

import inspect
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from zoo.data import extras
from zoo.data.augment import ALL, Augmentation, Drawn, Target
from zoo.data.batch import IGNORE_INDEX
from zoo.data.errors import UserError, known_names, similar_name

PACKAGE = "albumentations"
PREFIX = f"{PACKAGE}."
MOVED = ("image", "clip", "scene")  # kinds of samples whose pixels may move
MIRRORS = tuple(PREFIX + name for name in ("HorizontalFlip", "D4", "SquareSymmetry", "Transpose"))
SEEDS = 2**32
TRIALS = 8  # before a run
Options = tuple[tuple[str, Any], ...]


def parse(name: str, given: dict[str, Any]) -> Options:
    """Return the options of a transform.

    Raises:
        ValueError: the transform or an option is none, or cannot be used here.
    """
    options = tuple(sorted((key, _hashable(name, key, value)) for key, value in given.items()))
    if not extras.is_installed(PACKAGE):
        return options
    known = [*inspect.signature(_class(name)).parameters]
    for key in given:
        if key not in known:  # albumentations warns
            raise ValueError(f"{name}: {key}: unknown option{known_names(str(key), known)}")
    try:
        transform = _build(name, options)
    except (TypeError, ValueError, NotImplementedError) as error:
        reason = re.sub(
            r"\[type=.*|For further information.*|^.* validation errors? for .*", "", str(error), flags=re.M
        )
        raise ValueError(f"{name}: {' '.join(reason.split()) or type(error).__name__}") from None
    needed = [each for each in transform.targets_as_params if each != "image"]
    if needed:
        raise ValueError(f"{name}: it needs {', '.join(needed)}, which a sample has not")
    if getattr(transform, "mask_drop_value", None) is not None:
        raise ValueError(f"{name}: mask_drop_value: drops other pixels of the mask than of the image; leave it out")
    if getattr(transform, "mask_interpolation", 0) not in (0, 6):  # cv2.INTER_NEAREST, INTER_NEAREST_EXACT
        raise ValueError(f"{name}: mask_interpolation: mixes the numbers of classes; leave it out")
    return options


@cache
def try_out(name: str, options: Options, size: tuple[int, int], with_mask: bool) -> None:
    """Apply a transform some times, whatever its probability, to noise of the size of a sample.

    Args:
        size: height and width.

    Raises:
        ValueError: it fails, changes the size or the type, or does not move the mask with the image.
    """
    if not extras.is_installed(PACKAGE):
        return
    rng, transform = np.random.default_rng(0), _build(name, options)
    image, mask = rng.integers(0, 256, (*size, 3), np.uint8), rng.integers(0, 2, size, np.uint8)
    for seed in range(TRIALS):
        samples: list[dict[str, np.ndarray]] = [{"image": image}]
        samples += [{"image": image, "mask": mask}, {"image": 0 * image, "mask": mask}] if with_mask else []
        done = []
        for sample in samples:
            transform.set_random_seed(seed)
            done.append(_checked(name, sample, partial(transform, force_apply=True, **sample)))
        if with_mask and not (_equal(done, 0, 1, "image") and _equal(done, 1, 2, "mask")):
            raise ValueError(
                f"{name}: it looks at the mask, or moves it by what it sees in the image; take another one"
            )


def _equal(done: Sequence[dict[str, np.ndarray]], first: int, second: int, part: str) -> bool:
    return np.array_equal(done[first][part], done[second][part])


def _checked(name: str, sample: dict[str, np.ndarray], apply: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Return a transformed sample. Raises ValueError if the transform fails or changes size or type."""
    try:
        after = apply()
    except Exception as error:
        size = " x ".join(map(str, sample["image"].shape))
        raise ValueError(f"{name} fails on {size}: {type(error).__name__}: {error}") from error
    for part, before in sample.items():
        if getattr(after[part], "dtype", None) != before.dtype or after[part].shape != before.shape:
            had, has = (f"{x.dtype} {' x '.join(map(str, x.shape))}" for x in (before, after[part]))
            raise ValueError(f"{name} turns {had} into {has}; a transform has to keep size and type")
    return after


def find(name: str) -> Augmentation:
    if not extras.is_installed(PACKAGE):
        return Augmentation(partial(_draw, name, True), ALL)
    moves = not issubclass(_class(name), _library().ImageOnlyTransform)
    return Augmentation(partial(_draw, name, moves), MOVED if moves else ALL)


def _draw(name: str, moves: bool, target: Target, rng: np.random.Generator, /, **options: Any) -> Drawn:
    key, seed = (name, tuple(options.items())), int(rng.integers(SEEDS))
    return Drawn(partial(_on_image, key, seed), partial(_on_label, key, seed) if moves else None)


def _on_image(key: tuple[str, Options], seed: int, image: np.ndarray) -> np.ndarray:
    return _applied(key, seed, "image", image=image)


def _on_label(key: tuple[str, Options], seed: int, label: np.ndarray) -> np.ndarray:
    image = np.zeros((*label.shape, 3), np.uint8)  # it has no part in what is drawn
    return _applied(key, seed, "mask", image=image, mask=label)


def _applied(key: tuple[str, Options], seed: int, part: str, **sample: np.ndarray) -> np.ndarray:
    """Return a part of a sample after the transform. Raises UserError if that fails or changes its size or type."""
    try:
        after = _checked(key[0], sample, partial(_transform(key, seed), **sample))
    except ValueError as error:
        raise UserError(f"data.augment: {error}") from error
    return np.ascontiguousarray(after[part])


def _transform(key: tuple[str, Options], seed: int) -> Any:
    """Return a transform of this thread that draws from a seed."""
    transform = _of_thread(key, threading.get_ident())
    transform.set_random_seed(seed)
    return transform


@cache
def _of_thread(key: tuple[str, Options], thread: int) -> Any:
    """Return a transform that is of one thread alone."""
    return _build(*key)


def _build(name: str, options: Options) -> Any:
    transform = _class(name)(**dict(options))
    if "fill_mask" not in dict(options) and getattr(transform, "fill_mask", None) is not None:
        transform.fill_mask = IGNORE_INDEX
    return transform


def _class(name: str) -> Any:
    library, word = _library(), name.removeprefix(PREFIX)
    found = getattr(library, word, None)
    if isinstance(found, type) and issubclass(found, library.BasicTransform):
        return found
    types = {each: value for each, value in vars(library).items() if isinstance(value, type)}
    known = [each for each, value in types.items() if issubclass(value, library.BasicTransform)]
    raise ValueError(f"albumentations {library.__version__} has no transform {word!r}{similar_name(word, known)}")


@cache
def _library() -> Any:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else it asks PyPI for its newest version when imported
    extras.require(PACKAGE)
    import albumentations

    return albumentations


def _hashable(name: str, key: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(name, key, item) for item in value)
    if isinstance(value, dict):
        raise ValueError(f"{name}: {key}: must be a number, a text or a list, got {value!r}")
    return value
