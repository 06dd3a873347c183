"""Images, masks and animations in folders of any layout."""

import os
from itertools import product

import cv2
import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)


def paths(layout, *parts):
    """Return the paths that a layout makes of all combinations: a/1.jpg, a/2.jpg ... of {}/{}.jpg, ab and 12."""
    return [layout.format(*each) for each in product(*parts)]


def write(root, path, pixels):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    cv2.imwrite(path, pixels)


def photo(root, *paths, size=32):
    """Write images of noise."""
    for path in paths:
        write(root, path, RNG.integers(0, 256, (size, size, 3), np.uint8))


def mask(root, path, classes=3, size=32):
    """Write a mask with a rectangle per class, somewhere."""
    pixels = np.zeros((size, size), np.uint8)
    for value in range(1, classes):
        top = RNG.integers(0, 16)
        pixels[top : top + 12, 8 * value : 8 * value + 8] = value
    write(root, path, pixels)


def scenes(root, images, masks, count=4, image_name="{}.jpg", mask_name="{}.png"):
    """Write images and their masks into folders."""
    for number in range(count):
        photo(root, os.path.join(images, image_name.format(number)))
        mask(root, os.path.join(masks, mask_name.format(number)))


def animation(root, names, frames):
    """Write GIF files."""
    for name in names:
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        first, *others = (Image.fromarray(RNG.integers(0, 256, (32, 32, 3), np.uint8)) for _ in range(frames))
        first.save(path, save_all=True, append_images=others)
