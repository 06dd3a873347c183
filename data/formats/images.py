"""Decoding of image files to uint8 RGB arrays, upright. Whatever cannot be read raises BadSample.

Pillow reads the headers and resizes with antialiasing, bit for bit as in the evaluations behind torchvision's published
accuracies. The pixels of ordinary JPEG and PNG files are decoded by OpenCV, which gives the same ones sooner; those of
all others by Pillow, such as the CMYK files of ImageNet. Colors are those of its convert("RGB"): transparency is
dropped, and the color stored below it stays.

Ordinary JPEG files hold 8-bit color or gray images; ordinary PNG files one image in 8-bit RGB, and nothing that could
change its colors or rotate it. Both end as they should: some versions of OpenCV return a gray rest for a cut file.
"""

import io
import math
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError

from zoo.data import stages
from zoo.data.errors import BadSample
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.data.transforms.geometry import Box, Geometry, Size
from zoo.data.transforms.pixels import finish, resize

EXTENSIONS = (".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
# By content, whatever the extension. Pillow's other formats may start external programs.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
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
NOT_DECODED = "cannot be decoded as an image"
# Scans of a JPEG file. Each costs time for all pixels, and may be a few bytes; encoders make about ten.
MAX_SCANS, CHECKED_WORK = 100, 2 * 10**10  # the latter: pixels x bytes, below which any number takes a second
BYTES_PER_SCAN = 1 << 14  # allows more of them in a baseline file: a video behind the image has their marker by chance
# Headers of PPM (color) and PGM (gray) as prepared scenes have them: kind, width, height; a byte per value follows.
PPM, PGM = b"6", b"5"
RAW = re.compile(rb"P([56])\n(\d{1,5}) (\d{1,5})\n255\n")
PLAIN_FORMATS = (b"P1", b"P2", b"P3")  # PBM, PGM and PPM as text, which Pillow reads word by word, for hours
TILE_SIZE = (322, 323)  # tags of TIFF: width and height

RGB: int = getattr(cv2, "IMREAD_COLOR_RGB", 0)  # of OpenCV 4.11 and later; older ones decode to BGR alone
FLAGS = {  # by the number that both sides of a JPEG image are divided by
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}

JPEG_START, JPEG_END, JPEG_SCAN = b"\xff\xd8", b"\xff\xd9", b"\xff\xda"
# Markers that begin a frame of Huffman-coded 8-bit samples, baseline, extended or progressive.
PROGRESSIVE_MARKER = 0xFFC2
FRAME_MARKERS = frozenset((0xFFC0, 0xFFC1, PROGRESSIVE_MARKER))
# Markers of other frames, and of a scan without a frame.
EXCLUDED_MARKERS = frozenset((0xFFC3, 0xFFC5, 0xFFC6, 0xFFC7, 0xFFC9, 0xFFCA, 0xFFCB, 0xFFCD, 0xFFCE, 0xFFCF, 0xFFDA))
METADATA_MARKER = 0xFFE1  # EXIF and XMP, both of which may give an orientation
MIN_MARKER = 0xFF00
SEGMENT = struct.Struct(">HH")  # marker, and length without it
FRAME = struct.Struct(">BHHB")  # bits per sample, height, width, components
MAX_SEGMENTS = 256  # before the frame

PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", b"\0\0\0\0IEND\xaeB`\x82"
PNG_SIGNATURE_BYTES, PNG_CHECKSUM_BYTES = 8, 4
PNG_CHUNK = struct.Struct(">I4s")  # length and name; content and checksum follow
PNG_HEADER, EIGHT_BIT_RGB = struct.Struct(">IIBB"), [8, 2]  # width, height, bits per sample, color type
# Transparency, animation, orientation, texts that may be compressed, which libpng decompresses to any length, and color
# profiles, of which it prints what is wrong with them.
PNG_EXCLUDED = (b"tRNS", b"acTL", b"eXIf", b"zTXt", b"iTXt", b"iCCP")
PNG_TEXT, ORIENTATION_KEYWORDS = b"tEXt", (b"Raw profile type exif", b"XML:com.adobe.xmp")

# Pillow warns about damaged EXIF blocks, of which ImageNet has many, and about large images, which are refused below.
warnings.filterwarnings("ignore", module=r"PIL\.")


class EncodedImage(NamedTuple):
    """An image whose header has been read and whose pixels have not.

    Attributes:
        content: the file.
        stored: width and height as stored.
        is_jpeg: whether it can be decoded at a fraction of its size.
        for_opencv: whether it is an ordinary file, which all decoders read alike.
        orientation: UPRIGHT, or a value of ORIENTATIONS.
    """

    content: bytes
    stored: Size
    is_jpeg: bool
    for_opencv: bool
    orientation: tuple[bool, bool, bool] = UPRIGHT

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


def read(path: str) -> EncodedImage:
    """Read a file into memory, and the header and orientation of its image. Raises BadSample."""
    return parse(read_content(path))


def parse(content: bytes) -> EncodedImage:
    """Read the header and orientation of an image from the content of its file. Raises BadSample."""
    header = jpeg_header(content)
    size = (header.width, header.height) if header else png_size(content)
    if size:
        regular.check_share(*size, len(content), regular.ORDINARY)
        _check_scans(*size, content)
    if size and not (header and header.may_be_rotated):
        return EncodedImage(content, size, bool(header), True)
    with parsing(NOT_DECODED, kind=BadSample):
        image = _open(content)
        if not size:
            _check_by_pillow(image, content)
        orientation = None
        with suppress(Exception):  # a damaged EXIF block, which may raise anything, does not affect the pixels
            orientation = image.getexif().get(EXIF_ORIENTATION)
        upright = ORIENTATIONS.get(orientation or 0, UPRIGHT)
        # Pillow turns a TIFF image upright itself, and gives the size that it will have.
        stored = image.size[::-1] if image.format == "TIFF" and upright[2] else image.size
        return EncodedImage(content, stored, bool(header) or image.format == "JPEG", bool(size), upright)


def _check_by_pillow(image: Image.Image, content: bytes) -> None:
    """Raise BadSample if decoding an image by Pillow would take too much time or memory for its file."""
    share = regular.IN_FRAMES if image.format in ("GIF", "WEBP", "TIFF") else regular.BY_PILLOW
    _check_share(image, content, share)
    if image.format == "JPEG":
        _check_scans(*image.size, content)


def _check_share(image: Image.Image, content: bytes, share: regular.Share) -> None:
    regular.check_share(*image.size, len(content), share)
    if image.format == "TIFF":  # its tiles may be larger than the image
        tags = image.getexif()
        width, height = (tags.get(tag, 0) for tag in TILE_SIZE)
        regular.check_share(width, height, len(content), share)


def _check_scans(width: int, height: int, content: bytes) -> None:
    if width * height * len(content) <= CHECKED_WORK or not content.startswith(JPEG_START):
        return
    header = _jpeg_frame(content)  # whatever follows the image
    is_baseline = header is not None and not header.is_progressive
    limit = MAX_SCANS + (len(content) // BYTES_PER_SCAN if is_baseline else 0)
    if content.count(JPEG_SCAN) > limit:
        raise BadSample(f"it has more than {limit} scans")


def _open(content: bytes) -> Image.Image:
    """Read the header of an image. Raises BadSample, and errors of Pillow."""
    if content.startswith(PLAIN_FORMATS):
        raise BadSample("pixels written as text are not supported")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise BadSample("not an image of a supported format") from None
    regular.check_pixels(*image.size)
    return image


class JpegHeader(NamedTuple):
    """Size of an ordinary JPEG image as stored, in pixels, whether its metadata may rotate it, and its coding."""

    width: int
    height: int
    may_be_rotated: bool
    is_progressive: bool


def decode_ordinary(encoded: bytes, scale: int = 1) -> np.ndarray | None:
    """Decode an ordinary image file as stored.

    Args:
        encoded: the file.
        scale: 1, 2, 4 or 8, by which both sides of a JPEG image are divided and rounded up.

    Returns:
        uint8 RGB (H, W, 3); None if it cannot be decoded.
    """
    if not encoded:
        return None
    flags, content = FLAGS[scale] | cv2.IMREAD_IGNORE_ORIENTATION, np.frombuffer(encoded, np.uint8)
    if RGB:
        return cv2.imdecode(content, flags & ~cv2.IMREAD_COLOR | RGB)  # OpenCV 5 refuses both
    pixels = cv2.imdecode(content, flags)
    return None if pixels is None else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)


def jpeg_header(encoded: bytes) -> JpegHeader | None:
    """Read the header of an ordinary JPEG file; None if it is none."""
    ordinary = encoded.startswith(JPEG_START) and encoded.endswith(JPEG_END)
    return _jpeg_frame(encoded) if ordinary else None


def _jpeg_frame(encoded: bytes) -> JpegHeader | None:
    at, may_be_rotated = len(JPEG_START), False
    for _ in range(MAX_SEGMENTS):
        if at + SEGMENT.size > len(encoded):
            return None
        marker, length = SEGMENT.unpack_from(encoded, at)
        if marker in FRAME_MARKERS:
            at += SEGMENT.size
            if length < FRAME.size + 2 or at + FRAME.size > len(encoded):
                return None
            precision, height, width, components = FRAME.unpack_from(encoded, at)
            if precision != 8 or components not in (1, 3) or not width or not height:
                return None
            return JpegHeader(width, height, may_be_rotated, marker == PROGRESSIVE_MARKER)
        if marker < MIN_MARKER or marker in EXCLUDED_MARKERS or length < 2:
            return None
        may_be_rotated |= marker == METADATA_MARKER
        at += 2 + length
    return None


def png_size(encoded: bytes) -> Size | None:
    """Return width and height of an ordinary PNG file, None of another; reads the headers of its chunks alone."""
    if not (encoded.startswith(PNG_START) and encoded.endswith(PNG_END)):
        return None
    at, last = PNG_SIGNATURE_BYTES, len(encoded) - len(PNG_END)
    while at < last:
        length, name = PNG_CHUNK.unpack_from(encoded, at)
        start = at + PNG_CHUNK.size
        if start + length > last or name in PNG_EXCLUDED:
            return None
        if name == PNG_TEXT and encoded.startswith(ORIENTATION_KEYWORDS, start):
            return None
        at = start + length + PNG_CHECKSUM_BYTES
    if at != last:
        return None
    width, height, *form = PNG_HEADER.unpack_from(encoded, len(PNG_START))
    return (width, height) if form == EIGHT_BIT_RGB and width and height else None


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
    """Decode an image and carry out a geometry on it.

    Args:
        encoded: the image.
        geometry: with a size; its coordinates are those of the upright image.
        reduce: decode JPEG files at 1/2, 1/4 or 1/8 as long as the box keeps `size` pixels in both directions; only
            with `geometry.antialias`.

    Returns:
        uint8 RGB (H, W, 3).

    Raises:
        BadSample: the pixels cannot be decoded.
    """
    assert geometry.size
    left, top, width, height = encoded.stored_box(geometry.box or (0, 0, *encoded.size))
    target = geometry.size[::-1] if encoded.orientation[2] else geometry.size
    with parsing(NOT_DECODED, kind=BadSample):
        pixels, factor = decode_pixels(encoded, jpeg_scale(encoded, geometry) if reduce else 1)
        edges = (left / factor, top / factor, (left + width) / factor, (top + height) / factor)
        return finish(encoded.upright(_resize_box(pixels, edges, target, geometry)), geometry)


def jpeg_scale(encoded: EncodedImage, geometry: Geometry) -> int:
    """Return the largest of 1, 2, 4 and 8 by which a JPEG file may be shrunk and its box keep the size."""
    assert geometry.size
    _, _, width, height = geometry.box or (0, 0, *encoded.size)
    factor = max(min(width // geometry.size[0], height // geometry.size[1]), 1)
    return max(scale for scale in FLAGS if scale <= factor)


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
    image = _open(encoded.content)
    factor, turned = _draft_jpeg(image, scale), image.format == "TIFF"
    pixels = np.asarray(to_rgb(image))
    return encoded.as_stored(pixels) if turned else pixels, factor


@contextmanager
def open_image(file: str | BinaryIO, share: regular.Share | None = None) -> Iterator[Image.Image]:
    """Open an image as stored, whatever its EXIF orientation; pixels are read on first access.

    Args:
        file: path or open file.
        share: of pixels that the file may ask for; None for that of an image that becomes RGB.

    Raises:
        BadSample: for any error in opening the file and, within the block, in reading its pixels.
    """
    content = read_content(file) if isinstance(file, str) else file.read()
    with parsing("cannot be decoded", kind=BadSample), stages.stage(stages.DECODE), _open(content) as image:
        if share is None:
            _check_by_pillow(image, content)
        else:
            _check_share(image, content, share)
        yield image


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB. Raises ValueError for pixels of unknown range."""
    if image.mode.startswith("I;16") or (image.mode, image.format) == (
        "I",
        "PPM",
    ):  # convert() would clip all above 255
        image = Image.fromarray((np.asarray(image, np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of 32 bits, mode {image.mode}, have no known range")
    return image if image.mode == "RGB" else image.convert("RGB")


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


def _draft_jpeg(image: Image.Image, scale: int) -> float:
    """Have Pillow decode a JPEG shrunk by `scale`; return by which factor it shrinks."""
    if scale == 1:
        return 1
    width, height = image.size
    drafted = image.draft(None, (width // scale, height // scale))
    # The decoder rounds sides up, so the last pixels of a row may extend over the edge: sizes do not give the scale.
    return width / drafted[1][2] if drafted else 1
