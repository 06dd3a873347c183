"""The demo set of street scenes: images with a label for every pixel, in the folders, names and ids of Cityscapes.

Ten of the nineteen classes occur, including poles, signs and traffic lights, and four types of ignored pixels. Colors
overlap between classes. The set is generated at first use, in seconds, always with the same bytes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from zoo.data import order
from zoo.data.datasets import cityscapes
from zoo.data.datasets.segmentation import SegmentationSplit
from zoo.data.demo import common
from zoo.data.demo import street_drawing as scene
from zoo.data.demo.common import Canvas, coverage, pick_color
from zoo.data.extras import cv2
from zoo.data.fields import Doc, FilePath, SettingError, Sides, Word

CITIES = {"train": ("altbrueck", "fernhagen", "moorstadt", "seewalde"), "val": ("linderfels", "quellheim")}
FRAME = 19  # of each sequence, the frame that Cityscapes labels
SEED = 2026
SKIES = [
    ((90, 140, 205), (190, 210, 225)),
    ((185, 190, 198), (215, 215, 212)),
    ((150, 165, 190), (225, 195, 165)),
    ((130, 135, 145), (175, 175, 175)),
]  # colors at the zenith and at the horizon
describe = cityscapes.describe


@dataclass(frozen=True)
class Settings(cityscapes.Settings):
    root: FilePath = "datasets/streets"
    set: Word | None = "streets"
    crop: Sides = (scene.HEIGHT, scene.WIDTH)
    train_images: Annotated[int, Doc("Training images that are generated.")] = 400
    val_images: Annotated[int, Doc("Validation images that are generated.")] = 60

    def __post_init__(self):
        super().__post_init__()
        for key, split in (("train_images", "train"), ("val_images", "val")):
            if getattr(self, key) < len(CITIES[split]):
                raise SettingError(key, f"must be at least {len(CITIES[split])}, the number of cities")


def load(settings: Settings) -> tuple[SegmentationSplit, SegmentationSplit]:
    """Generate the set if it does not exist, then open it like Cityscapes."""
    root = make(settings.root, settings.train_images, settings.val_images)
    return cityscapes.load(replace(settings, root=root))


def make(root: str, train_images: int, val_images: int) -> str:
    """Write the set to `root`, unless it is there; return its folder (see common.write)."""

    def fill(folder: str) -> None:
        for split, count in (("train", train_images), ("val", val_images)):
            for city in CITIES[split]:
                for name in ("leftImg8bit", "gtFine"):
                    os.makedirs(os.path.join(folder, name, split, city))
            common.map_threads(partial(_write, folder, split), range(count))

    content = f"{train_images + val_images} small PNG files and their masks"
    recipe = {"version": 1, "train_images": train_images, "val_images": val_images}
    return common.write(root, "streets", recipe, content, fill)


def _write(root: str, split: str, number: int) -> None:
    sequence, city_index = divmod(number, len(CITIES[split]))
    city = CITIES[split][city_index]
    image, labels = render(order.generator(SEED, split, number))
    for folder, suffix, pixels in (
        ("leftImg8bit", "leftImg8bit", image[:, :, ::-1]),
        ("gtFine", "gtFine_labelIds", labels),
    ):
        name = f"{city}_{sequence:06d}_{FRAME:06d}_{suffix}.png"
        write_png(os.path.join(root, folder, split, city, name), pixels)


def write_png(path: str, pixels: np.ndarray) -> None:
    """Write uint8 gray (H, W) or BGR (H, W, 3); equal pixels give equal bytes."""
    encoded = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 3])[1]
    with open(path, "wb") as file:  # raises on a full disk, where cv2.imwrite only returns False
        file.write(encoded.tobytes())


def render(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw one street.

    Returns:
        The image, uint8 RGB (HEIGHT, WIDTH, 3), and the ids of its pixels, uint8 (HEIGHT, WIDTH).
    """
    canvas = Canvas(scene.HEIGHT, scene.WIDTH)
    zenith, haze = (pick_color(rng, [color], 15) for color in SKIES[int(rng.integers(len(SKIES)))])
    view = _random_view(rng, haze)
    scene.paint_sky(canvas, view, rng, zenith)
    scene.paint_ground(canvas, view, rng)
    scene.paint_far_end(canvas, view, rng)
    for side in (-1, 1):
        scene.paint_houses(canvas, view, rng, side)
    Objects(canvas, view, rng).place_all().paint()
    _paint_camera(canvas, rng)
    gain = rng.uniform(0.75, 1.15) * rng.uniform(0.92, 1.08, (3, 1, 1))
    image = canvas.image * gain + rng.normal(0, rng.uniform(1.5, 5), canvas.image.shape)
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(1, 2, 0)), canvas.labels


def _random_view(rng: np.random.Generator, haze: np.ndarray) -> scene.View:
    left, right = rng.uniform(3.4, 5.6, 2)
    return scene.View(
        focal=rng.uniform(135, 165),
        height=rng.uniform(2.2, 2.9),
        center=rng.uniform(105, 151),
        horizon=float(rng.integers(46, 58)),
        haze=haze,
        left=-left,
        right=right,
        sidewalk=rng.uniform(2.6, 4.2),
    )


class Objects:
    """Objects of a street scene: first all are placed, then they are painted from far to near."""

    def __init__(self, canvas: Canvas, view: scene.View, rng: np.random.Generator):
        self.canvas, self.view, self.rng = canvas, view, rng
        self.placed: list[tuple[float, Callable[[], None]]] = []  # distance in meters, and what paints the object

    def place_all(self) -> "Objects":
        """Place a random number of each object, where one expects it."""
        self._place_poles_and_trees()
        self._place_persons()
        self._place_bins()
        self._place_cars()
        return self

    def place(self, paint_object: Callable[..., None], x: float, z: float, *options: Any) -> None:
        self.placed.append((z, lambda: paint_object(self.canvas, self.view, self.rng, x, z, *options)))

    def paint(self) -> None:
        """Paint the objects from far to near, so that near ones hide the others."""
        for _, paint_object in sorted(self.placed, key=lambda entry: -entry[0]):
            paint_object()

    def _random_side(self) -> int:
        return int(self.rng.choice([-1, 1]))

    def _sidewalk_x(self, side: int, nearest: float, farthest: float) -> float:
        """Draw an x on the sidewalk of one side, at a distance from the curb in meters."""
        distance = self.rng.uniform(nearest, farthest)
        return self.view.right + distance if side > 0 else self.view.left - distance

    def _place_poles_and_trees(self) -> None:
        rng = self.rng
        heads = rng.choice(["sign", "sign", "light", "lamp", ""], rng.integers(1, 4))
        for head in ["sign", "light"] + [str(head) for head in heads]:
            x = self._sidewalk_x(self._random_side(), 0.2, 0.7)
            self.place(scene.paint_pole, x, rng.uniform(6, 11), head)
        for _ in range(rng.integers(1, 4)):
            x = self._sidewalk_x(self._random_side(), 0.8, self.view.sidewalk)
            self.place(scene.paint_tree, x, rng.uniform(8, 18))

    def _place_persons(self) -> None:
        rng = self.rng
        for _ in range(rng.integers(1, 4)):
            x = self._sidewalk_x(self._random_side(), 0, self.view.sidewalk * 0.7)
            self.place(scene.paint_person, x, rng.uniform(5.5, 8.5))
        for _ in range(rng.integers(1, 3)):
            x = rng.uniform(self.view.left, self.view.right)
            self.place(scene.paint_person, x, rng.uniform(4.5, 7))

    def _place_bins(self) -> None:
        for label in (scene.STATIC, scene.DYNAMIC):
            if self.rng.random() < 0.5:
                x = self._sidewalk_x(self._random_side(), 0.5, self.view.sidewalk * 0.8)
                self.place(scene.paint_bin, x, self.rng.uniform(6, 14), label)

    def _place_cars(self) -> None:
        """Place two rows of parked cars, sometimes a moving one, and sometimes one that turns into the street."""
        rng, view = self.rng, self.view
        turning_z = rng.uniform(10, 22) if rng.random() < 0.35 else -np.inf

        def is_free(z: float) -> bool:
            return not -6 < z - turning_z < 3.5

        for x in (view.left + 1.0, view.right - 1.0):
            z = rng.uniform(6, 16)
            while z < 22 and rng.random() < 0.75:
                if is_free(z):
                    self.place(scene.paint_car, x, z, False)
                z += rng.uniform(5.5, 12)
        z = rng.uniform(8, 20)
        if rng.random() < 0.75 and is_free(z):
            self.place(scene.paint_car, rng.uniform(0, view.right - 2.8), z, False)
        if turning_z > 0:
            self.place(scene.paint_car, rng.uniform(view.left, view.right), turning_z, True)


def _paint_camera(canvas: Canvas, rng: np.random.Generator) -> None:
    """Paint the hood of the camera's car, and the dark border left by rectification."""
    height, width = canvas.labels.shape
    if rng.random() < 0.8:
        region, y, x = canvas.window(0, height - 12, width, height)
        offset = (x / width - rng.uniform(0.45, 0.55)) * 2
        inside = y - height + rng.uniform(6, 11) - rng.uniform(3, 6) * offset * offset
        metal = pick_color(rng, [(40, 42, 46), (90, 92, 95), (55, 60, 75)])
        canvas.paint(coverage(inside), metal * (1 + 0.04 * inside), scene.EGO, region)
    left, top, right, bottom = rng.integers(0, 3, 4)
    border = np.ones((height, width))
    border[top : height - bottom, left : width - right] = 0
    canvas.paint(border, pick_color(rng, [(8, 8, 8)], 8), scene.BORDER, (slice(None), slice(None)))
