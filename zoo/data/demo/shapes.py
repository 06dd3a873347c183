"""The demo set of images: JPEG files in the layout of ImageNet, whose eight classes differ only by shape.

Colors, sizes, positions, angles and background textures have the same distribution in all classes, so a model that uses
color alone can only guess. The set is generated at first use, in seconds, always with the same bytes.
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np

from zoo.data import order
from zoo.data.datasets import imagenet
from zoo.data.demo import common
from zoo.data.fields import Doc, FilePath, Fractions, Word
from zoo.data.formats import images

CLASSES = ("cross", "disc", "dots", "ring", "square", "star", "stripes", "triangle")  # sorted, as folders are
SIDES = (64, 81)  # width and height in pixels: minimum, maximum + 1
MIN_CONTRAST = 60  # between the mean levels of shape and background
QUALITY = 90
SEED = 2026
describe = imagenet.describe


@dataclass(frozen=True)
class Settings(imagenet.Settings):
    root: FilePath = "datasets/shapes"
    set: Word | None = "shapes"
    scale: Fractions = (0.6, 1.0)  # a smaller crop may miss the shape
    train_images: Annotated[int, Doc("Training images that are generated.")] = 1200
    val_images: Annotated[int, Doc("Validation images that are generated.")] = 240

    def __post_init__(self):
        super().__post_init__()
        common.check_multiple(self, ("train_images", "val_images"), len(CLASSES))


def load(settings: Settings) -> tuple[imagenet.ImageSplit, imagenet.ImageSplit]:
    """Generate the set if it does not exist, then open it like ImageNet."""
    root = make(settings.root, settings.train_images, settings.val_images)
    return imagenet.load(replace(settings, root=root))


def make(root: str, train_images: int, val_images: int) -> str:
    """Write the set to `root`, unless it is there; return its folder (see common.write)."""

    def fill(folder: str) -> None:
        for split, count in (("train", train_images), ("val", val_images)):
            for name in CLASSES:
                os.makedirs(os.path.join(folder, split, name))
            common.map_threads(partial(_write, folder, split), range(count))

    content = f"{train_images + val_images} small JPEG files"
    recipe = {"version": 1, "train_images": train_images, "val_images": val_images}
    return common.write(root, "shapes", recipe, content, fill)


def _write(root: str, split: str, number: int) -> None:
    name = CLASSES[number % len(CLASSES)]
    pixels = render(name, order.generator(SEED, split, number))
    images.write_jpeg(os.path.join(root, split, name, f"{number:05d}.JPEG"), pixels, QUALITY)


def render(name: str, rng: np.random.Generator) -> np.ndarray:
    """Draw one shape on a textured background.

    It uses exact 64-bit numpy arithmetic only, so that the pixels do not depend on the processor.

    Returns:
        uint8 RGB (height, width, 3), of random height and width.
    """
    height, width = (int(side) for side in rng.integers(*SIDES, 2))
    radius = rng.uniform(0.26, 0.38) * min(height, width)
    center_x, center_y = (side / 2 + rng.uniform(-1, 1) * (0.42 * side - radius) for side in (width, height))
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[:height, :width] + 0.5
    u = (np.cos(angle) * (x - center_x) + np.sin(angle) * (y - center_y)) / radius
    v = (np.cos(angle) * (y - center_y) - np.sin(angle) * (x - center_x)) / radius
    coverage = np.clip(0.5 - signed_distance(name, u, v) * radius, 0, 1)[:, :, None]

    background, foreground = rng.uniform(40, 215, (2, 3))
    while abs(foreground.mean() - background.mean()) < MIN_CONTRAST:  # distinguishable in gray, in either direction
        background, foreground = rng.uniform(40, 215, (2, 3))
    scene = background + 45 * _texture(rng, height, width)
    shape = foreground + 20 * _texture(rng, height, width)
    noise = rng.normal(0, 5, (height, width, 1))
    return np.clip(scene + coverage * (shape - scene) + noise, 0, 255).astype(np.uint8)


def signed_distance(name: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the signed distance of points to a shape of radius 1 around (0, 0), negative inside.

    All shapes have similar areas.
    """
    radius = np.hypot(u, v)
    if name == "disc":
        return radius - 0.8
    if name == "ring":
        return np.abs(radius - 0.75) - 0.2
    if name == "square":
        return np.maximum(np.abs(u), np.abs(v)) - 0.72
    if name == "triangle":
        return np.maximum(np.maximum(v, np.sqrt(0.75) * u - 0.5 * v), -np.sqrt(0.75) * u - 0.5 * v) - 0.5
    if name == "cross":
        horizontal, vertical = (np.maximum(np.abs(a) - 1, np.abs(b) - 0.27) for a, b in ((u, v), (v, u)))
        return np.minimum(horizontal, vertical)
    if name == "star":  # five times the wedge between a tip at 1 and a notch at 0.45
        wedge = np.pi / 5
        turn = np.abs(np.mod(np.arctan2(v, u), 2 * wedge) - wedge)
        along, across = radius * np.cos(turn - wedge), radius * np.sin(wedge - turn)
        edge_x, edge_y = 0.45 * np.cos(wedge) - 1, 0.45 * np.sin(wedge)
        return ((along - 1) * edge_y - across * edge_x) / np.hypot(edge_x, edge_y)
    if name == "stripes":
        bar = np.abs(v / 0.58 - np.clip(np.round(v / 0.58), -1, 1)) * 0.58
        return np.maximum(bar - 0.165, np.abs(u) - 0.8)
    cell_x, cell_y = (a - 0.62 * np.clip(np.round(a / 0.62), -1, 1) for a in (u, v))  # dots: three by three
    return np.hypot(cell_x, cell_y) - 0.22


def _texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return smooth noise in [-1, 1]: (height, width, 1), bilinear between the knots of a random grid."""
    knots = int(rng.integers(3, 9))
    rows, columns = (np.linspace(0, knots - 1, side) for side in (height, width))
    values = rng.uniform(-1, 1, (knots, knots))
    interpolated = np.stack([np.interp(columns, np.arange(knots), row) for row in values])  # (knots, width)
    low = np.minimum(rows.astype(int), knots - 2)
    weight = (rows - low)[:, None]
    return (interpolated[low] * (1 - weight) + interpolated[low + 1] * weight)[:, :, None]
