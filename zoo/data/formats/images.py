"""Decoding of image files to uint8 RGB arrays, upright. Whatever cannot be read raises BadSample.

Pillow reads the headers and resizes with antialiasing, bit for bit as in the evaluations behind torchvision's published
accuracies. The pixels of ordinary JPEG and PNG files are decoded by OpenCV, which gives the same ones sooner; those of
all others by Pillow, such as the CMYK files of ImageNet. Colors are those of its convert("RGB"): transparency is
dropped, and the color stored below it stays.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

import numpy as np

from zoo.data import stages
from zoo.data.errors import BadSample, parsing
from zoo.data.extras import Image, cv2
from zoo.data.formats import file_names, headers, jpeg, regular
from zoo.data.transforms.geometry import Box, Geometry, Size
from zoo.data.transforms.pixels import finish, resize

EXTENSIONS = file_names.IMAGE_EXTENSIONS
EXIF_ORIENTATION = 0x0112
UPRIGHT = (False, False, False)
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
PHOTOMETRIC, WHITE_IS_ZERO = 262, 0  # a tag of TIFF, and a value of it
SAMPLE_FORMAT, UNSIGNED = 339, 1  # likewise
SUBFILE, REDUCED_OR_MASK = 254, 1 | 4  # likewise
SPARE_BANDS = re.compile("X(;16|$)")  # in Pillow's name of a form of pixels, RGBX for red, green, blue and another one
DARK, NARROW = 64, 32  # of 255 levels: less than the former, or a range of less than the latter, is a loss
ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")  # but not JPEG, whose second image is a preview or a depth map
CHANNELS = (1, 3, 4)
NOT_DECODED = "cannot be decoded as an image"
# Headers of PPM (color) and PGM (gray) as prepared scenes have them: kind, width, height; a byte per value follows.
PPM, PGM = b"6", b"5"
RAW = re.compile(rb"P([56])\n(\d{1,5}) (\d{1,5})\n255\n")

FLAGS = {  # by the number that both sides of a JPEG image are divided by
    1: "IMREAD_COLOR",
    2: "IMREAD_REDUCED_COLOR_2",
    4: "IMREAD_REDUCED_COLOR_4",
    8: "IMREAD_REDUCED_COLOR_8",
}


Levels = tuple[float, float] | None


class EncodedImage(NamedTuple):
    """An image whose header has been read and whose pixels have not.

    Attributes:
        is_jpeg: whether it can be decoded at a fraction of its size.
        for_opencv: whether it is an ordinary file, which all decoders read alike.
        orientation: UPRIGHT, or a value of ORIENTATIONS.
        levels: of an image of more than 8 bits, those that become 0 and 255; None: all that 16 bits have.
    """

    content: bytes
    stored: Size
    is_jpeg: bool
    for_opencv: bool
    orientation: tuple[bool, bool, bool] = UPRIGHT
    levels: Levels = None

    @property
    def is_ordinary(self) -> bool:
        """Whether it is an ordinary file that is stored upright."""
        return self.for_opencv and self.orientation == UPRIGHT

    @property
    def size(self) -> Size:
        """Width and height of the upright image."""
        return self.stored[::-1] if self.orientation[2] else self.stored

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

    def as_stored(self, pixels: np.ndarray) -> np.ndarray:
        """Return the pixels (H, W, 3) of the upright image as they are stored: what `upright` undoes."""
        mirror_x, mirror_y, swap = self.orientation
        pixels = pixels[::-1] if mirror_y else pixels
        pixels = pixels[:, ::-1] if mirror_x else pixels
        return np.ascontiguousarray(pixels.transpose(1, 0, 2) if swap else pixels)


def read(path: str, levels: Levels = None) -> EncodedImage:
    """Read a file into memory, and the header and orientation of its image. Raises BadSample."""
    return parse(read_content(path))._replace(levels=levels)


def parse(content: bytes) -> EncodedImage:
    """Read the header and orientation of an image from the content of its file. Raises BadSample."""
    header = headers.jpeg_header(content)
    size = (header.width, header.height) if header else headers.png_size(content)
    if size:
        regular.check_share(*size, len(content), regular.ORDINARY)
        headers.check_scans(*size, content)
    if size and not (header and header.may_be_rotated):
        return EncodedImage(content, size, bool(header), True)
    with parsing(NOT_DECODED, kind=BadSample):
        image = headers.open_header(content)
        if not size:
            headers.check_by_pillow(image, content)
        upright = _orientation(image)
        # Pillow turns a TIFF image upright itself, and gives the size that it will have.
        stored = image.size[::-1] if image.format == "TIFF" and upright[2] else image.size
        return EncodedImage(content, stored, bool(header) or image.format == "JPEG", bool(size), upright)


def _orientation(image: "Image.Image") -> tuple[bool, bool, bool]:
    """Return the orientation of an image whose pixels have not been read."""
    with suppress(Exception):  # a damaged EXIF block, which may raise anything, does not affect the pixels
        return ORIENTATIONS.get(image.getexif().get(EXIF_ORIENTATION, 0), UPRIGHT)
    return UPRIGHT


def decode_ordinary(encoded: bytes, scale: int = 1) -> np.ndarray | None:
    """Decode an ordinary image file as stored.

    Args:
        scale: 1, 2, 4 or 8, by which both sides of a JPEG image are divided and rounded up.

    Returns:
        uint8 RGB (H, W, 3); None if it cannot be decoded.
    """
    if not encoded:
        return None
    encoded = headers.bare_png(encoded) if encoded.startswith(headers.PNG_START) else encoded
    flags, content = getattr(cv2, FLAGS[scale]) | cv2.IMREAD_IGNORE_ORIENTATION, np.frombuffer(encoded, np.uint8)
    if rgb := getattr(cv2, "IMREAD_COLOR_RGB", 0):  # of OpenCV 4.11 and later; older ones decode to BGR alone
        return cv2.imdecode(content, flags & ~cv2.IMREAD_COLOR | rgb)  # OpenCV 5 refuses both
    pixels = cv2.imdecode(content, flags)
    return None if pixels is None else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)


@stages.stage(stages.READ)
def read_content(path: str) -> bytes:
    """Read a file into memory. Raises BadSample."""
    with parsing("cannot be read", kind=BadSample):
        try:
            content = regular.read(path)
        except FileNotFoundError:
            raise BadSample("no such file") from None
    if not content:
        raise BadSample("the file is empty")
    return content


def decode(encoded: EncodedImage, geometry: Geometry, reduce: bool = False) -> np.ndarray:
    """Decode an image and carry out a geometry on it. Raises BadSample.

    Args:
        geometry: with a size; its coordinates are those of the upright image.
        reduce: decode JPEG files at 1/2, 1/4 or 1/8 as long as the box keeps `size` pixels in both directions; only
            with `geometry.antialias`.

    Returns:
        uint8 RGB (H, W, 3).
    """
    assert geometry.size
    left, top, width, height = box = encoded.stored_box(geometry.box or (0, 0, *encoded.size))
    target = geometry.size[::-1] if encoded.orientation[2] else geometry.size
    with parsing(NOT_DECODED, kind=BadSample):
        scale, factor = jpeg_scale(encoded, geometry) if reduce else 1, 1.0
        has_rows = geometry.box and scale == 1 and encoded.for_opencv and encoded.is_jpeg
        pixels = jpeg.decode_box(encoded.content, box) if has_rows else None
        if pixels is None:
            pixels, factor = decode_pixels(encoded, scale)
        else:
            left, top = 0, 0
        edges = (left / factor, top / factor, (left + width) / factor, (top + height) / factor)
        return finish(encoded.upright(_resize_box(pixels, edges, target, geometry)), geometry)


def jpeg_scale(encoded: EncodedImage, geometry: Geometry) -> int:
    """Return the largest of 1, 2, 4 and 8 by which a JPEG file may be shrunk and its box keep the size."""
    assert geometry.size
    _, _, width, height = geometry.box or (0, 0, *encoded.size)
    factor = max(min(width // geometry.size[0], height // geometry.size[1]), 1)
    return max(scale for scale in FLAGS if scale <= factor)


def from_pillow(image: "Image.Image", upright: bool, levels: Levels = None) -> np.ndarray:
    """Return an image of Pillow as its file is decoded, uint8 RGB (H, W, 3); upright: turned as its EXIF says.

    Raises:
        BadSample: its pixels cannot be read, or have no known range.
    """
    with parsing(NOT_DECODED, kind=BadSample):
        orientation, is_turned = _orientation(image), image.format == "TIFF"  # Pillow turns this one itself
        pixels = np.array(to_rgb(image, levels))
        if is_turned == upright:
            return pixels
        read = EncodedImage(b"", image.size, False, False, orientation)
        return read.upright(pixels) if upright else read.as_stored(pixels)


def explain_array(array: np.ndarray) -> str:
    """Return the end of a message on an array that is no uint8 RGB (H, W, 3): how to make one of it."""
    several, steps = "; give several as a list", "image"
    if array.ndim == 3 and array.shape[0] in CHANNELS and array.shape[2] not in CHANNELS:
        array, steps = array.transpose(1, 2, 0), f"{steps}.transpose(1, 2, 0)"
    if array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
        steps = f"np.dstack([{steps}] * 3)"
    elif array.ndim == 3 and array.shape[2] == 4:
        steps = f"{steps}[..., :3]"
    elif array.ndim != 3 or array.shape[2] != 3:
        return several
    if not array.size or array.dtype.kind not in "biuf":
        return several
    low, high = array.min(), array.max()
    if not 0 <= low <= high <= 255:
        return f"; scale its levels, which are from {low:g} to {high:g}, to 0 to 255"
    if array.dtype.kind == "b" or (array.dtype.kind == "f" and high <= 1):
        steps = f"(255 * {steps})"
    steps += ".round()" if array.dtype.kind == "f" else ""
    steps += ".astype(np.uint8)" if array.dtype != np.uint8 else ""
    return f"; give {steps}"


def remark(encoded: EncodedImage) -> str:
    """Return what of an image is left out or lost when it becomes 8-bit RGB; "" for nothing. Raises BadSample."""
    if encoded.for_opencv:
        return ""
    with parsing(NOT_DECODED, kind=BadSample):
        image = headers.open_header(encoded.content)
        found, form = list[str](), _raw_mode(image)
        if SPARE_BANDS.search(form):
            bands = image.tag_v2[headers.BANDS]  # type: ignore[attr-defined]
            found.append(f"it has {bands} bands, of which the first {len(image.mode)} are read")
        if lost := _lost_levels(image, form, encoded.levels):
            remedy = "set data.levels, or " if image.mode.startswith(("I", "F")) else ""
            found.append(f"{lost}: {remedy}scale them over 8 bits")
        if (pages := _count_pages(image)) > 1:
            found.append(f"it has {pages} pages or frames, of which the first is read")
    return "; ".join(found)


def check_depth(encoded: EncodedImage) -> None:
    """Raise BadSample if 8 bits would keep next to nothing of an image of more."""
    if not encoded.for_opencv:
        with parsing(NOT_DECODED, kind=BadSample):
            image = headers.open_header(encoded.content)
            if lost := _lost_levels(image, _raw_mode(image), encoded.levels):
                raise BadSample(f"{lost}; scale them over 8 bits")


def _raw_mode(image: "Image.Image") -> str:
    """Return how Pillow names the pixels of a file, such as I;16B; "" if it does not."""
    forms = (tile[3] for tile in image.tile)  # type: ignore[attr-defined]
    return next((str(form if isinstance(form, str) else form[0]) for form in forms), "")


def _lost_levels(image: "Image.Image", form: str, levels: Levels) -> str:
    """Return what becomes of the levels of an image of more than 8 bits if most of them are lost; else ""."""
    if ";16" in form or image.mode == "I" or (image.mode == "F" and levels):
        pixels = np.asarray(to_rgb(image, levels))
        low, high = int(pixels.min()), int(pixels.max())
        if high < DARK or high - low < NARROW:
            return f"its {'16-bit ' if ';16' in form else ''}levels become {low} to {high} of 255"
    return ""


def _count_pages(image: "Image.Image") -> int:
    """Return the number of images in a file but for smaller copies and masks, which TIFF has too."""
    count = getattr(image, "n_frames", 1)
    if image.format != "TIFF":
        return count if image.format in ANIMATED else 1
    pages = 0
    for page in range(count):
        image.seek(page)
        pages += not image.tag_v2.get(SUBFILE, 0) & REDUCED_OR_MASK  # type: ignore[attr-defined]
    return pages


def decode_stored(encoded: EncodedImage) -> np.ndarray:
    """Decode an image as stored, whatever its orientation: uint8 RGB (H, W, 3). Raises BadSample."""
    with parsing(NOT_DECODED, kind=BadSample):
        return decode_pixels(encoded)[0]


@stages.stage(stages.DECODE)
def decode_pixels(encoded: EncodedImage, scale: int = 1) -> tuple[np.ndarray, float]:
    """Decode an image as stored, a JPEG file shrunk by `scale`: 1, 2, 4 or 8.

    Returns:
        uint8 RGB (H, W, 3), and the factor by which it is smaller.

    Raises:
        Errors of Pillow and OpenCV.
    """
    scale = scale if encoded.is_jpeg else 1
    pixels = decode_ordinary(encoded.content, scale) if encoded.for_opencv else raw_pixels(encoded.content, PPM)
    if pixels is not None:
        return pixels, scale
    image = headers.open_header(encoded.content)
    factor, turned = _draft_jpeg(image, scale), image.format == "TIFF"
    pixels = np.asarray(to_rgb(image, encoded.levels))
    return encoded.as_stored(pixels) if turned else pixels, factor


@contextmanager
def open_image(file: str | BinaryIO, share: regular.Share | None = None) -> Iterator["Image.Image"]:
    """Open an image as stored, whatever its EXIF orientation; pixels are read on first access.

    Raises BadSample, within the block too.

    Args:
        share: of pixels that the file may ask for; None for that of an image that becomes RGB.
    """
    content = read_content(file) if isinstance(file, str) else file.read()
    with (
        parsing("cannot be decoded", kind=BadSample),
        stages.stage(stages.DECODE),
        headers.open_header(content) as image,
    ):
        headers.check_by_pillow(image, content, share)
        yield image


def to_rgb(image: "Image.Image", levels: Levels = None) -> "Image.Image":
    """Convert an image of any mode to 8-bit RGB. Raises ValueError for pixels of unknown range."""
    if levels and image.mode.startswith(("I", "F")):
        low, high = levels
        scaled = np.nan_to_num((_values(image) - low) * (255 / (high - low)))
        gray = np.rint(scaled.clip(0, 255)).astype(np.uint8)
        is_negative = getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == WHITE_IS_ZERO
        image = Image.fromarray(~gray if is_negative else gray)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):  # convert() would clip them
        tags = getattr(image, "tag_v2", {})  # of TIFF, whose samples may have 12 bits, or zero for white
        gray = (np.asarray(image, np.uint16) >> tags.get(headers.BITS, (16,))[0] - 8).astype(np.uint8)
        image = Image.fromarray(~gray if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else gray)
    if image.mode in ("I", "F"):
        raise ValueError(
            f"pixels of mode {image.mode}, signed or of 32 bits, have no known range; set data.levels, or write 8 bits"
        )
    return image if image.mode == "RGB" else image.convert("RGB")


def _values(image: "Image.Image") -> np.ndarray:
    """Return the levels of a gray image as its file has them, float64 (H, W)."""
    codec = image.tile[0][3] if image.tile else None  # type: ignore[attr-defined]
    values = np.asarray(image)
    if image.format == "PPM" and isinstance(codec, tuple):  # with another maximum, to which Pillow has scaled them
        return np.rint(values * (codec[1] / 65535))
    if image.format == "TIFF" and image.mode == "I" and image.tag_v2.get(SAMPLE_FORMAT, (1,))[0] == UNSIGNED:  # type: ignore[attr-defined]
        values = values.astype(np.uint32)
    return values.astype(np.float64)


def raw_pixels(content: bytes, kind: bytes) -> np.ndarray | None:
    """Return the pixels of a PPM or PGM file that `raw_file` wrote, without a copy; None of another."""
    header = RAW.match(content)
    if not header or header[1] != kind:
        return None
    width, height = int(header[2]), int(header[3])
    shape = (height, width, 3) if kind == PPM else (height, width)
    if len(content) != header.end() + math.prod(shape):
        return None
    return np.frombuffer(content, np.uint8, offset=header.end()).reshape(shape)


def raw_file(pixels: np.ndarray) -> bytes:
    """Return uint8 (H, W, 3) as a PPM file or uint8 (H, W) as a PGM file."""
    height, width = pixels.shape[:2]
    return b"P%b\n%d %d\n255\n" % (PPM if pixels.ndim == 3 else PGM, width, height) + pixels.tobytes()


def write_jpeg(path: str, pixels: np.ndarray, quality: int) -> None:
    """Write uint8 RGB (H, W, 3); equal pixels give equal bytes."""
    Image.fromarray(pixels).save(path, "JPEG", quality=quality)


def _resize_box(pixels: np.ndarray, edges: tuple[float, ...], size: Size, geometry: Geometry) -> np.ndarray:
    """Resize a box of an image, given by its left, top, right and bottom edges, by the filter of a geometry."""
    x, y = math.floor(edges[0]), math.floor(edges[1])
    # Crop before the resize: its filter must not see pixels outside of the box, as in torchvision.
    region = pixels[y : math.ceil(edges[3]), x : math.ceil(edges[2])]
    if not geometry.antialias:
        return resize(region, *size, antialias=False)
    inner = (edges[0] - x, edges[1] - y, edges[2] - x, edges[3] - y)
    return resize(region, *size, True, inner, geometry.fast)


def _draft_jpeg(image: "Image.Image", scale: int) -> float:
    """Have Pillow decode a JPEG shrunk by `scale`; return by which factor it shrinks."""
    if scale == 1:
        return 1
    width, height = image.size
    drafted = image.draft(None, (width // scale, height // scale))
    # The decoder rounds sides up, so the last pixels of a row may extend over the edge: sizes do not give the scale.
    return width / drafted[1][2] if drafted else 1
