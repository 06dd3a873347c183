"""RandAugment (arXiv:1909.13719) and TrivialAugment (arXiv:2103.10158), with the draws of torchvision (0.28)."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from zoo.data.augment import Drawn, Pixels, Target, operations
from zoo.data.augment.operations import Interpolation
from zoo.data.fields import Range

KINDS = {"rand_augment": ("image", "clip"), "trivial_augment": ("image", "clip")}
BINS = 31  # magnitudes 0 ... 30
Padding = Literal["black", "mean"]


class Limits(NamedTuple):
    """Values of the operations at the largest magnitude."""

    shear: float  # slope
    translate_x: float  # pixels
    translate_y: float
    rotate: float  # degrees
    enhance: float  # added to or subtracted from a factor of 1
    posterize: int  # bits that are dropped


TRIVIAL_LIMITS = Limits(shear=0.99, translate_x=32, translate_y=32, rotate=135, enhance=0.99, posterize=6)
# Name -> the operation, the field of Limits that scales it.
MOVES: dict[str, tuple[Callable[..., np.ndarray], str]] = {
    "shear_x": (operations.shear_x, "shear"),
    "shear_y": (operations.shear_y, "shear"),
    "translate_x": (operations.translate_x, "translate_x"),
    "translate_y": (operations.translate_y, "translate_y"),
    "rotate": (operations.rotate, "rotate"),
}
ENHANCEMENTS = {
    "brightness": operations.brightness,
    "color": operations.saturation,
    "contrast": operations.contrast,
    "sharpness": operations.sharpness,
}
NAMES = ("identity", *MOVES, *ENHANCEMENTS, "posterize", "solarize", "autocontrast", "equalize")
SIGNED = (*MOVES, *ENHANCEMENTS)


def draw_operation(rng: np.random.Generator) -> str:
    return NAMES[rng.integers(len(NAMES))]


def draw_sign(name: str, rng: np.random.Generator) -> int:
    """Draw 1 or -1 for an operation that has two directions."""
    return -1 if name in SIGNED and rng.integers(2) else 1


def operation(name: str, magnitude: int, sign: int, limits: Limits, keys: dict[str, Any]) -> Pixels:
    """Return an operation with its parameters.

    Args:
        magnitude: 0 ... BINS - 1.
        keys: `interpolation` and `fill` of the operations that move pixels.
    """
    share = magnitude / (BINS - 1)
    if name in MOVES:
        function, key = MOVES[name]
        value = _spaced(getattr(limits, key), magnitude) * sign
        return partial(_positional, function, int(value) if name.startswith("translate") else value, keys)
    if name in ENHANCEMENTS:
        return partial(_positional, ENHANCEMENTS[name], 1 + _spaced(limits.enhance, magnitude) * sign, {})
    if name == "posterize":
        return partial(_positional, operations.posterize, 8 - round(share * limits.posterize), {})
    if name == "solarize":
        return partial(_positional, operations.solarize, 255 - _spaced(255, magnitude), {})
    return {"autocontrast": operations.autocontrast, "equalize": operations.equalize}.get(name, _identity)


def move_keys(target: Target, interpolation: Interpolation, fill: Padding) -> dict[str, Any]:
    """Return the arguments of the operations that move pixels."""
    return {"interpolation": interpolation, "fill": target.mean_bytes if fill == "mean" else (0, 0, 0)}


def chain(functions: list[Pixels], image: np.ndarray) -> np.ndarray:
    """Carry out operations one after the other."""
    for function in functions:
        image = function(image)
    return image


def _spaced(largest: float, magnitude: int) -> float:
    """Return a value of BINS evenly spaced ones from 0 to the largest, in float32 as torch.linspace computes it.

    It goes from both ends to the middle, with one rounding of each value.
    """
    end, last = np.float32(largest), BINS - 1
    step = float(end / np.float32(last))
    value = step * magnitude if magnitude < BINS // 2 else float(end) - step * (last - magnitude)
    return float(np.float32(value))


def _positional(
    function: Callable[..., np.ndarray], value: float, keys: dict[str, Any], image: np.ndarray
) -> np.ndarray:
    return function(image, value, **keys)


def _identity(image: np.ndarray) -> np.ndarray:
    return image


def rand_augment(
    target: Target,
    rng: np.random.Generator,
    *,
    n: Annotated[int, Range(low=1, high=14)] = 2,
    m: Annotated[int, Range(low=0, high=BINS - 1)] = 9,
    interpolation: Interpolation = "nearest",
    fill: Padding = "black",
) -> Drawn:
    """Draw n operations of magnitude m."""
    shift = 150 / 331
    limits = Limits(0.3, shift * target.width, shift * target.height, 30, 0.9, 4)
    keys = move_keys(target, interpolation, fill)
    functions = []
    for _ in range(n):
        name = draw_operation(rng)
        functions.append(operation(name, m, draw_sign(name, rng), limits, keys))
    return Drawn(partial(chain, functions))


def trivial_augment(
    target: Target,
    rng: np.random.Generator,
    *,
    interpolation: Interpolation = "nearest",
    fill: Padding = "black",
) -> Drawn:
    """Draw an operation, its magnitude and its sign."""
    name, magnitude = draw_operation(rng), int(rng.integers(BINS))
    sign = draw_sign(name, rng)
    return Drawn(operation(name, magnitude, sign, TRIVIAL_LIMITS, move_keys(target, interpolation, fill)))
