"""Encoded pictures to arrays: uint8 RGB, upright. Whatever cannot be read raises BadSample.

Pillow does it: it antialiases when it shrinks, bit for bit what torchvision's published accuracies were taken with,
and it reads the CMYK files of ImageNet. Colours come out as its convert("RGB") makes them: transparency is dropped,
the colour stored below it stays.
"""

import io
import math
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from PIL import Image

from data.errors import BadSample
from data.transforms.clips import Box, center_box

Choose = Callable[[int, int], Box]  # width and height of the upright picture -> the box to keep

EXTENSIONS = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")  # by content, whatever the ending; others run programs
MAX_PIXELS = 89_478_485  # Pillow's own mark of a decompression bomb; the largest of ImageNet has 61 million
ORIENTATION = 0x0112
# EXIF orientation -> which axes to mirror, and whether x and y then change places, to get from upright to stored.
TURNS = {
    2: (True, False, False),
    3: (True, True, False),
    4: (False, True, False),
    5: (False, False, True),
    6: (True, False, True),
    7: (True, True, True),
    8: (False, True, True),
}
FAILURES = (
    OSError,
    ValueError,
    SyntaxError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    struct.error,
    Image.DecompressionBombError,
)

# Pillow talks about damaged EXIF blocks, of which ImageNet has many, and large pictures, which are refused below.
warnings.filterwarnings("ignore", module=r"PIL\.")


class EncodedImage(NamedTuple):
    """A picture whose header was read and whose pixels were not."""

    image: Image.Image
    turn: tuple[bool, bool, bool]  # of TURNS

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        width, height = self.image.size
        return (height, width) if self.turn[2] else (width, height)

    def box(self, upright: Box) -> Box:
        """Where a box of the upright picture lies in the stored one."""
        (left, top, width, height), (mirror_x, mirror_y, swap) = upright, self.turn
        left = self.size[0] - left - width if mirror_x else left
        top = self.size[1] - top - height if mirror_y else top
        return (top, left, height, width) if swap else (left, top, width, height)

    def upright(self, image: Image.Image) -> np.ndarray:
        """Pixels (H, W, 3) of a part of the stored picture, turned as a person sees them."""
        pixels, (mirror_x, mirror_y, swap) = np.asarray(image), self.turn
        pixels = pixels.transpose(1, 0, 2) if swap else pixels
        pixels = pixels[:, ::-1] if mirror_x else pixels
        return np.ascontiguousarray(pixels[::-1] if mirror_y else pixels)


def decode_crop(path: str, choose: Choose, size: int, reduce: bool = False) -> np.ndarray:
    """The box that choose(width, height) names, resized to (size, size, 3).

    reduce: JPEG files are decoded at 1/2, 1/4 or 1/8 as long as the box keeps `size` pixels in both directions.
    """
    stored = _open(path)
    left, top, width, height = stored.box(choose(*stored.size))
    with _failures():
        factor = _reduced(stored.image, min(width, height) // size if reduce else 1)
        edges = [edge / factor for edge in (left, top, left + width, top + height)]
        outer = [math.floor(edges[0]), math.floor(edges[1]), math.ceil(edges[2]), math.ceil(edges[3])]
        # Cut before the resize: its filter must not see what lies outside, as torchvision's does not.
        part = rgb(stored.image.crop(outer))
        inner = [edge - outer[i % 2] for i, edge in enumerate(edges)]
        return stored.upright(part.resize((size, size), Image.Resampling.BILINEAR, inner))


def center(path: str, short: int, size: int) -> np.ndarray:
    """The central (size, size, 3) of the picture whose shorter side is resized to `short`, the longer one truncated."""
    stored = _open(path)
    width, height = stored.image.size
    if width < height:
        target = short, int(short * height / width)
    else:
        target = int(short * width / height), short
    with _failures():
        pixels = stored.upright(rgb(stored.image).resize(target, Image.Resampling.BILINEAR))
    left, top, _, _ = center_box(pixels.shape[1], pixels.shape[0], size)
    return np.ascontiguousarray(pixels[top : top + size, left : left + size])


@contextmanager
def open_image(path: str) -> Iterator[Image.Image]:
    """A file whose header is read, and whose pixels are read when they are asked for, as stored: a mark of rotation is
    not obeyed. Whatever fails, also within the block, raises BadSample."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than {MAX_PIXELS} in all")
            yield image
    except FileNotFoundError:
        raise BadSample("no such file") from None
    except FAILURES as error:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        known = "cannot identify" not in reason
        raise BadSample(f"cannot be decoded ({reason[:160]})" if known else "not a picture of a known kind") from None


def write_jpeg(path: str, pixels: np.ndarray, quality: int) -> None:
    """Write (H, W, 3) uint8 RGB; the same pixels give the same bytes."""
    Image.fromarray(pixels).save(path, "JPEG", quality=quality)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise BadSample(f"cannot be decoded as a picture ({reason[:160]})") from None


def _open(path: str) -> EncodedImage:
    try:
        with open(path, "rb") as file:
            encoded = file.read()
    except FileNotFoundError:
        raise BadSample("no such file") from None
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror})") from None
    if not encoded:
        raise BadSample("the file is empty")
    try:
        with _failures():
            image = Image.open(io.BytesIO(encoded), formats=FORMATS)
            width, height = image.size
    except BadSample as error:
        raise BadSample("not a picture of a known kind" if "cannot identify" in str(error) else str(error)) from None
    if width * height > MAX_PIXELS:
        raise BadSample(f"its header claims {width} x {height} pixels, more than {MAX_PIXELS} in all")
    try:
        orientation = image.getexif().get(ORIENTATION)
    except FAILURES:  # a broken EXIF block spoils no pixel
        orientation = None
    return EncodedImage(image, TURNS.get(orientation, (False, False, False)))


def _reduced(image: Image.Image, room: int) -> float:
    """Have a JPEG decoded at the smallest scale that `room` allows; how many times smaller it comes out."""
    scale = max(scale for scale in (1, 2, 4, 8) if scale <= max(room, 1))
    if scale == 1:
        return 1
    width, height = image.size
    drafted = image.draft(None, (width // scale, height // scale))
    # The decoder rounds sides up: the last pixels of a row may reach over the edge, so sizes do not tell the scale.
    return width / drafted[1][2] if drafted else 1


def rgb(image: Image.Image) -> Image.Image:
    """A picture in 8-bit RGB, whatever its kind. Raises ValueError for pixels of unknown range."""
    if image.mode.startswith("I;16"):  # convert() would clip all above 255
        image = Image.fromarray((np.asarray(image, np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits, mode {image.mode}, have no known range")
    return image if image.mode == "RGB" else image.convert("RGB")
