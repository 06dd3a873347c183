"""The demo set of scenes: streets with a label for every pixel, in Cityscapes' own folders, names and ids.

Ten of the nineteen classes occur, with poles, signs and traffic lights among them, and the four kinds of pixels that
are not evaluated. Colours overlap between classes. Made at first use, in seconds, always with the same bytes.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np

from data import order
from data.datasets import cityscapes
from data.datasets.common.segmentation import SegmentationSplit
from data.demo.common import cache
from data.demo.common import street_scene as scene

CITIES = {"train": ("altbrueck", "fernhagen", "moorstadt", "seewalde"), "val": ("linderfels", "quellheim")}
FRAME = 19  # of each sequence, the one that Cityscapes labels
SEED = 2026
SKIES = [
    ((90, 140, 205), (190, 210, 225)),
    ((185, 190, 198), (215, 215, 212)),
    ((150, 165, 190), (225, 195, 165)),
    ((130, 135, 145), (175, 175, 175)),
]  # colours high up and at the horizon
checksum = cityscapes.checksum

Thing = tuple[float, Callable[[], None]]  # how many metres away it stands, and what paints it


@dataclass(frozen=True)
class Settings(cityscapes.Settings):
    """The `data:` section of a recipe on the streets."""

    root: str = "datasets/streets"
    crop: tuple[int, int] = (scene.HEIGHT, scene.WIDTH)
    train_images: int = 400
    val_images: int = 60

    def __post_init__(self):
        super().__post_init__()
        for key, split in (("train_images", "train"), ("val_images", "val")):
            if getattr(self, key) < len(CITIES[split]):
                raise ValueError(f"{key}: must be at least {len(CITIES[split])}, the number of cities")


def load(settings: Settings) -> tuple[SegmentationSplit, SegmentationSplit]:
    """Make the set if it is not there, then load it like Cityscapes."""
    if not os.path.isdir(settings.root):
        make(settings.root, settings.train_images, settings.val_images)
    cache.check(settings.root, "streets", _recipe(settings.train_images, settings.val_images))
    return cityscapes.load(settings)


def make(root: str, train_images: int, val_images: int) -> None:
    """Write the set; a folder of this name is always whole."""
    print(f"making the demo set in {root}: {train_images + val_images} small PNG files and their masks ...", flush=True)

    def fill(folder: str) -> None:
        for split, count in (("train", train_images), ("val", val_images)):
            for city in CITIES[split]:
                for kind in ("leftImg8bit", "gtFine"):
                    os.makedirs(os.path.join(folder, kind, split, city))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda number: _write(folder, split, number), range(count)))

    cache.write(root, "streets", _recipe(train_images, val_images), fill)


def _recipe(train_images: int, val_images: int) -> cache.Recipe:
    return {"version": 1, "train_images": train_images, "val_images": val_images}


def _write(root: str, split: str, number: int) -> None:
    sequence, which = divmod(number, len(CITIES[split]))
    city = CITIES[split][which]
    picture, labels = street(order.generator(SEED, split, number))
    for folder, kind, pixels in (
        ("leftImg8bit", "leftImg8bit", picture[:, :, ::-1]),
        ("gtFine", "gtFine_labelIds", labels),
    ):
        name = f"{city}_{sequence:06d}_{FRAME:06d}_{kind}.png"
        write_png(os.path.join(root, folder, split, city, name), pixels)


def write_png(path: str, pixels: np.ndarray) -> None:
    """Write uint8 grey (H, W) or BGR (H, W, 3); the same pixels give the same bytes."""
    encoded = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 3])[1]
    with open(path, "wb") as file:  # where cv2.imwrite would only return False on a full disk
        file.write(encoded.tobytes())


def street(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """One street: its picture, uint8 RGB (HEIGHT, WIDTH, 3), and its labels, uint8 ids (HEIGHT, WIDTH)."""
    canvas = scene.Canvas()
    above, haze = (scene.pick(rng, [colour], 15) for colour in SKIES[int(rng.integers(len(SKIES)))])
    v = view(rng, haze)
    scene.sky(canvas, v, rng, above)
    scene.ground(canvas, v, rng)
    scene.far_end(canvas, v, rng)
    for side in (-1, 1):
        scene.houses(canvas, v, rng, side)
    paint(things(canvas, v, rng))
    frame(canvas, rng)
    gain = rng.uniform(0.75, 1.15) * rng.uniform(0.92, 1.08, (3, 1, 1))
    picture = canvas.picture * gain + rng.normal(0, rng.uniform(1.5, 5), canvas.picture.shape)
    pixels = np.clip(picture, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(1, 2, 0)), canvas.labels


def view(rng: np.random.Generator, haze: np.ndarray) -> scene.View:
    """A street and a camera in it, somewhere above its middle."""
    left, right = rng.uniform(3.4, 5.6, 2)
    return scene.View(
        focal=rng.uniform(135, 165),
        height=rng.uniform(2.2, 2.9),
        centre=rng.uniform(105, 151),
        horizon=float(rng.integers(46, 58)),
        haze=haze,
        left=-left,
        right=right,
        walk=rng.uniform(2.6, 4.2),
    )


def paint(found: list[Thing]) -> None:
    """From far to near, so that the near ones hide the far ones."""
    for _, draw in sorted(found, key=lambda thing: -thing[0]):
        draw()


def things(canvas: scene.Canvas, v: scene.View, rng: np.random.Generator) -> list[Thing]:
    """What stands and moves on the street, where a person would expect it."""
    found: list[Thing] = []

    def place(what, x, z, *options):
        found.append((z, lambda: what(canvas, v, rng, x, z, *options)))

    def beside(side, nearest, farthest):  # x on the pavement, in metres from the kerb
        away = rng.uniform(nearest, farthest)
        return v.right + away if side > 0 else v.left - away

    def side():
        return int(rng.choice([-1, 1]))

    others = rng.choice(["sign", "sign", "light", "lamp", ""], rng.integers(1, 4))
    for head in ["sign", "light"] + [str(head) for head in others]:
        place(scene.pole, beside(side(), 0.2, 0.7), rng.uniform(6, 11), head)
    for _ in range(rng.integers(1, 4)):
        place(scene.tree, beside(side(), 0.8, v.walk), rng.uniform(8, 18))
    for _ in range(rng.integers(1, 4)):
        place(scene.person, beside(side(), 0, v.walk * 0.7), rng.uniform(5.5, 8.5))
    for _ in range(rng.integers(1, 3)):
        place(scene.person, rng.uniform(v.left, v.right), rng.uniform(4.5, 7))
    for label in (scene.STATIC, scene.DYNAMIC):
        if rng.random() < 0.5:
            place(scene.litter, beside(side(), 0.5, v.walk * 0.8), rng.uniform(6, 14), label)

    crossing = rng.uniform(10, 22) if rng.random() < 0.35 else -np.inf  # where a car turns into the street
    for x in (v.left + 1.0, v.right - 1.0):  # two rows of parked cars
        z = rng.uniform(6, 16)
        while z < 22 and rng.random() < 0.75:
            if not -6 < z - crossing < 3.5:
                place(scene.car, x, z, False)
            z += rng.uniform(5.5, 12)
    z = rng.uniform(8, 20)
    if rng.random() < 0.75 and not -6 < z - crossing < 3.5:  # and one that drives
        place(scene.car, rng.uniform(0, v.right - 2.8), z, False)
    if crossing > 0:
        place(scene.car, rng.uniform(v.left, v.right), crossing, True)
    return found


def frame(canvas: scene.Canvas, rng: np.random.Generator) -> None:
    """What belongs to the camera: the bonnet of its car below, and the dark edge that undistortion leaves."""
    height, width = canvas.labels.shape
    if rng.random() < 0.8:
        place, y, x = canvas.window(0, height - 12, width, height)
        away = (x / width - rng.uniform(0.45, 0.55)) * 2
        inside = y - height + rng.uniform(6, 11) - rng.uniform(3, 6) * away * away
        metal = scene.pick(rng, [(40, 42, 46), (90, 92, 95), (55, 60, 75)])
        canvas.paint(scene.share(inside), metal * (1 + 0.04 * inside), scene.EGO, place)
    left, top, right, bottom = rng.integers(0, 3, 4)
    edge = np.ones((height, width))
    edge[top : height - bottom, left : width - right] = 0
    canvas.paint(edge, scene.pick(rng, [(8, 8, 8)], 8), scene.BORDER, (slice(None), slice(None)))
