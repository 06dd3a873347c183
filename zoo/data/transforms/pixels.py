"""The steps of a geometry on the pixels of an image or a mask."""

import importlib

import numpy as np

from zoo.data.errors import BadSample
from zoo.data.extras import Image, cv2
from zoo.data.transforms.geometry import RESIZER, Box, Geometry, Size

MAX_PIXELS = 1 << 26  # of a result: a shorter side of one pixel, enlarged to 256, may make billions of a longer one
Edges = tuple[float, float, float, float]  # left, top, right, bottom


def apply(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out all steps on an image, uint8 (H, W, 3) -> uint8 (H', W', 3), contiguous."""
    return finish(scale(image, geometry), geometry)


def scale(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out the steps up to the resize."""
    if geometry.box:
        image = crop(image, geometry.box)
    if geometry.size and geometry.size != image.shape[1::-1]:
        image = resize(image, *geometry.size, geometry.antialias, fast=geometry.fast)
    return image


def finish(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out the steps after the resize."""
    if geometry.window:
        image = crop(image, geometry.window)
    if geometry.flip:
        image = flip(image)
    if geometry.canvas:
        image = pad(image, geometry.canvas, geometry.fill)
    return np.ascontiguousarray(image)


def crop(image: np.ndarray, box: Box) -> np.ndarray:
    """Return a view of a box of an image or mask (H, W, ...)."""
    left, top, width, height = box
    return image[top : top + height, left : left + width]


def flip(image: np.ndarray) -> np.ndarray:
    """Mirror an image or mask (H, W, ...) horizontally; much faster than a copy of image[:, ::-1]."""
    return cv2.flip(image, 1)


def pad(image: np.ndarray, canvas: Size, fill: tuple[int, ...]) -> np.ndarray:
    """Return a copy of at least the size of the canvas, padded at the bottom and on the right."""
    right, bottom = (max(side - current, 0) for side, current in zip(canvas, image.shape[1::-1]))
    return cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_CONSTANT, value=fill)


def resize(
    image: np.ndarray, width: int, height: int, antialias: bool, edges: Edges | None = None, fast: bool = False
) -> np.ndarray:
    """Resize an image.

    Args:
        image: uint8 (H, W, 3).
        antialias: widen the filter where the image shrinks, as Pillow's resize does; otherwise interpolate between
            the four nearest pixels, as OpenCV's does.
        edges: of the part that is resized, in fractions of pixels; only with `antialias`.
        fast: compute the antialiased filter by fast_image_resize, in a quarter of Pillow's time.

    Returns:
        uint8 (height, width, 3), the very pixels of Pillow's or OpenCV's resize; with `fast` at most 1 from Pillow's.

    Raises:
        BadSample: the result would have more than MAX_PIXELS.
    """
    if width * height > MAX_PIXELS:
        size = "x".join(map(str, image.shape[1::-1]))
        raise BadSample(f"its {size} pixels would become {width}x{height}; the limit is {MAX_PIXELS} in all")
    if antialias and fast:
        return _resize_fast(image, width, height, edges)
    if antialias:
        # Pillow copies a box of an array row by row, which takes twice as long as the resize itself.
        contiguous = np.ascontiguousarray(image)
        return np.asarray(Image.fromarray(contiguous).resize((width, height), Image.Resampling.BILINEAR, edges))
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)


def _resize_fast(image: np.ndarray, width: int, height: int, edges: Edges | None) -> np.ndarray:
    library = importlib.import_module(RESIZER)  # of the extra `data`; a data set looks for it when it is opened
    crop = edges and library.CropBox(edges[0], edges[1], edges[2] - edges[0], edges[3] - edges[1])
    bilinear = library.ResizeAlg.convolution(library.FilterType.bilinear)
    options = library.ResizeOptions(resize_alg=bilinear, crop_box=crop, use_alpha=False)
    contiguous = np.ascontiguousarray(image)  # whose bytes are copied several times faster
    source = library.ImageData(image.shape[1], image.shape[0], library.PixelType.U8x3, contiguous.tobytes())
    target = library.ImageData(width, height, library.PixelType.U8x3)
    library.Resizer().resize(source, target, options)
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(height, width, 3)
