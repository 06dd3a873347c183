"""Decoding of image files to uint8 RGB arrays, upright. Whatever cannot be read raises BadSample.

Pillow decodes, and resizes with antialiasing bit for bit as in the evaluations behind torchvision's published
accuracies; it reads the CMYK files of ImageNet. Colors are those of its convert("RGB"): transparency is dropped, and
the color stored below it stays.
"""

import io
import math
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import cv2
import numpy as np
from PIL import Image

from data.errors import BadSample
from data.transforms.clips import Box, center_box
from data.transforms.resize import resize

BoxChooser = Callable[[int, int], Box]  # width and height of the upright image -> the box to keep

EXTENSIONS = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
# By content, whatever the extension. Pillow's other formats may start external programs.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 89_478_485  # Pillow's own limit against decompression bombs; the largest of ImageNet has 61 million
EXIF_ORIENTATION = 0x0112
# EXIF orientation -> (mirror x, mirror y, swap x and y afterwards), which takes the upright image to the stored one.
ORIENTATIONS = {
    2: (True, False, False),
    3: (True, True, False),
    4: (False, True, False),
    5: (False, False, True),
    6: (True, False, True),
    7: (True, True, True),
    8: (False, True, True),
}
DECODE_ERRORS = (
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
    cv2.error,
    Image.DecompressionBombError,
)

# Pillow warns about damaged EXIF blocks, of which ImageNet has many, and about large images, which are refused below.
warnings.filterwarnings("ignore", module=r"PIL\.")


class EncodedImage(NamedTuple):
    """An image whose header has been read and whose pixels have not."""

    image: Image.Image
    orientation: tuple[bool, bool, bool]  # a value of ORIENTATIONS

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright image."""
        width, height = self.image.size
        return (height, width) if self.orientation[2] else (width, height)

    def stored_box(self, box: Box) -> Box:
        """Return a box of the upright image in the coordinates of the stored one."""
        (left, top, width, height), (mirror_x, mirror_y, swap) = box, self.orientation
        left = self.size[0] - left - width if mirror_x else left
        top = self.size[1] - top - height if mirror_y else top
        return (top, left, height, width) if swap else (left, top, width, height)

    def upright(self, pixels: np.ndarray) -> np.ndarray:
        """Return the pixels (H, W, 3) of a part of the stored image, rotated and mirrored upright."""
        mirror_x, mirror_y, swap = self.orientation
        pixels = pixels.transpose(1, 0, 2) if swap else pixels
        pixels = pixels[:, ::-1] if mirror_x else pixels
        return np.ascontiguousarray(pixels[::-1] if mirror_y else pixels)


def decode_crop(
    path: str, choose_box: BoxChooser, size: int, antialias: bool = True, reduce: bool = False
) -> np.ndarray:
    """Decode a box of an image and resize it, bilinear.

    Args:
        path: the image file.
        choose_box: called with width and height of the upright image, returns the box to keep.
        size: side of the result in pixels.
        antialias: see data/transforms/resize.py.
        reduce: decode JPEG files at 1/2, 1/4 or 1/8 as long as the box keeps `size` pixels in both directions; only
            with `antialias`.

    Returns:
        uint8 RGB (size, size, 3).

    Raises:
        BadSample: the file cannot be read.
    """
    encoded = _open(path)
    left, top, width, height = encoded.stored_box(choose_box(*encoded.size))
    with _decode_errors_as_bad_sample():
        factor = _draft_jpeg(encoded.image, min(width, height) // size if reduce else 1)
        left_edge, top_edge = left / factor, top / factor
        right_edge, bottom_edge = (left + width) / factor, (top + height) / factor
        x, y = math.floor(left_edge), math.floor(top_edge)
        # Crop before the resize: its filter must not see pixels outside of the box, as in torchvision.
        region = to_rgb(encoded.image.crop((x, y, math.ceil(right_edge), math.ceil(bottom_edge))))
        if not antialias:
            return encoded.upright(resize(np.asarray(region), size, size, antialias))
        edges = (left_edge - x, top_edge - y, right_edge - x, bottom_edge - y)
        return encoded.upright(np.asarray(region.resize((size, size), Image.Resampling.BILINEAR, edges)))


def decode_center(path: str, short_side: int, size: int, antialias: bool = True) -> np.ndarray:
    """Decode an image, resize its shorter side, the longer one in proportion (truncated), and crop the center.

    Args:
        path: the image file.
        short_side: length of the shorter side after the resize, in pixels.
        size: side of the central crop in pixels.
        antialias: see data/transforms/resize.py.

    Returns:
        uint8 RGB (size, size, 3).

    Raises:
        BadSample: the file cannot be read.
    """
    encoded = _open(path)
    width, height = encoded.image.size
    if width < height:
        width, height = short_side, int(short_side * height / width)
    else:
        width, height = int(short_side * width / height), short_side
    with _decode_errors_as_bad_sample():
        stored = np.asarray(to_rgb(encoded.image))
        pixels = encoded.upright(resize(stored, width, height, antialias))
    left, top, _, _ = center_box(pixels.shape[1], pixels.shape[0], size)
    return np.ascontiguousarray(pixels[top : top + size, left : left + size])


@contextmanager
def open_image(file: str | BinaryIO) -> Iterator[Image.Image]:
    """Open an image as stored, whatever its EXIF orientation; pixels are read on first access.

    Raises:
        BadSample: for any error in opening the file and, within the block, in reading its pixels.
    """
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, the limit is {MAX_PIXELS} in all")
            yield image
    except FileNotFoundError:
        raise BadSample("no such file") from None
    except DECODE_ERRORS as error:
        reason = _reason(error)
        unknown = "cannot identify" in reason
        raise BadSample("not an image of a supported format" if unknown else f"cannot be decoded ({reason})") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB. Raises ValueError for pixels of unknown range."""
    if image.mode.startswith("I;16"):  # convert() would clip all values above 255
        image = Image.fromarray((np.asarray(image, np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits, mode {image.mode}, have no known range")
    return image if image.mode == "RGB" else image.convert("RGB")


def write_jpeg(path: str, pixels: np.ndarray, quality: int) -> None:
    """Write uint8 RGB (H, W, 3); equal pixels give equal bytes."""
    Image.fromarray(pixels).save(path, "JPEG", quality=quality)


def _open(path: str) -> EncodedImage:
    """Read a file into memory and the header and orientation of its image. Raises BadSample."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise BadSample("no such file") from None
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror})") from None
    if not content:
        raise BadSample("the file is empty")
    try:
        with _decode_errors_as_bad_sample():
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            width, height = image.size
    except BadSample as error:
        unknown = "cannot identify" in str(error)
        raise BadSample("not an image of a supported format" if unknown else str(error)) from None
    if width * height > MAX_PIXELS:
        raise BadSample(f"its header claims {width} x {height} pixels, the limit is {MAX_PIXELS} in all")
    try:
        orientation = image.getexif().get(EXIF_ORIENTATION)
    except DECODE_ERRORS:  # a damaged EXIF block does not affect the pixels
        orientation = None
    return EncodedImage(image, ORIENTATIONS.get(orientation or 0, (False, False, False)))


def _draft_jpeg(image: Image.Image, max_factor: int) -> float:
    """Have a JPEG decoded at the smallest scale that `max_factor` allows; return by which factor it shrinks."""
    scale = max(scale for scale in (1, 2, 4, 8) if scale <= max(max_factor, 1))
    if scale == 1:
        return 1
    width, height = image.size
    drafted = image.draft(None, (width // scale, height // scale))
    # The decoder rounds sides up, so the last pixels of a row may extend over the edge: sizes do not give the scale.
    return width / drafted[1][2] if drafted else 1


@contextmanager
def _decode_errors_as_bad_sample() -> Iterator[None]:
    try:
        yield
    except DECODE_ERRORS as error:
        raise BadSample(f"cannot be decoded as an image ({_reason(error)})") from None


def _reason(error: BaseException) -> str:
    """Return the first line of an error's message, at most 160 characters."""
    return ((str(error).splitlines() or [""])[0] or type(error).__name__)[:160]
