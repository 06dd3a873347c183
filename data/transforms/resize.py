"""Bilinear resize of an image, with or without antialiasing."""

import cv2
import numpy as np
from PIL import Image

from zoo.data.errors import BadSample

MAX_PIXELS = 1 << 26  # of a result: a shorter side of one pixel, enlarged to 256, may make billions of a longer one
Edges = tuple[float, float, float, float]  # left, top, right, bottom


def resize(image: np.ndarray, width: int, height: int, antialias: bool, edges: Edges | None = None) -> np.ndarray:
    """Resize an image.

    Args:
        image: uint8 (H, W, 3).
        width: of the result.
        height: of the result.
        antialias: widen the filter where the image shrinks, as Pillow's resize does; otherwise interpolate between
            the four nearest pixels, as OpenCV's does.
        edges: of the part that is resized, in fractions of pixels; only with `antialias`.

    Returns:
        uint8 (height, width, 3), the very pixels of Pillow's or OpenCV's resize.

    Raises:
        BadSample: the result would have more than MAX_PIXELS.
    """
    if width * height > MAX_PIXELS:
        size = "x".join(map(str, image.shape[1::-1]))
        raise BadSample(f"its {size} pixels would become {width}x{height}; the limit is {MAX_PIXELS} in all")
    if antialias:
        # Pillow copies a box of an array row by row, which takes twice as long as the resize itself.
        contiguous = np.ascontiguousarray(image)
        return np.asarray(Image.fromarray(contiguous).resize((width, height), Image.Resampling.BILINEAR, edges))
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
