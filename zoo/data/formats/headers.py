"""Headers of image files: which ones are ordinary, and what decoding any of them would take.

Ordinary JPEG files hold 8-bit color or gray images; ordinary PNG files one image in 8-bit RGB, and nothing that could
change its colors or rotate it. Both end as they should: some versions of OpenCV return a gray rest for a cut file.
"""

import io
import re
import struct
import warnings
from contextlib import suppress
from typing import NamedTuple

from zoo.data.errors import BadSample
from zoo.data.extras import PIL, Image
from zoo.data.formats import regular
from zoo.data.transforms.geometry import Size

# By content, whatever the extension. Pillow's other formats may start external programs.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM", "AVIF")
FRAMES_KEPT = ("WEBP", "GIF", "TIFF", "AVIF")  # of which decoders keep several frames or buffers
# Scans of a JPEG file. Each costs time for all pixels, and may be a few bytes; encoders make about ten.
MAX_SCANS, CHECKED_WORK = 100, 2 * 10**10  # the latter: pixels x bytes, below which any number takes a second
BYTES_PER_SCAN = 1 << 14  # allows more of them in a baseline file: a video behind the image has their marker by chance
PLAIN_FORMATS = (b"P1", b"P2", b"P3")  # PBM, PGM and PPM as text, which Pillow reads word by word, for hours
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
TILE_SIZE, BITS, BANDS = (322, 323), 258, 277  # tags of TIFF: width and height, bits per sample, samples per pixel
OTHER_KINDS = {  # that carry names of images: how they begin, what they are and what to do
    rb"....ftyp(hei|hev|mif1|msf1)": "an image of HEIC, as phones write it; convert it to JPEG",
    rb"version https://git-lfs": "a pointer of Git LFS; fetch the file itself by git lfs pull",
    rb"(?i)\s*<(!doctype )?html": "a page of a web site; download the image itself",
    rb"(\0\0\0\x0cjP  |\xffO\xffQ)": "an image of JPEG 2000; convert it to JPEG or PNG",
    rb"(?s).{128}DICM": "an image of DICOM; convert it to 8-bit PNG by its window of levels",
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
PNG_NEEDED = (b"IHDR", b"IDAT", b"IEND")
PNG_EXCLUDED = (b"tRNS", b"acTL", b"eXIf", b"zTXt", b"iTXt", b"iCCP")
PNG_TEXT, ORIENTATION_KEYWORDS = b"tEXt", (b"Raw profile type exif", b"XML:com.adobe.xmp")

# Pillow warns about damaged EXIF blocks, of which ImageNet has many, and about large images, which are refused below.
warnings.filterwarnings("ignore", module=r"PIL\.")


class JpegHeader(NamedTuple):
    """Size of a JPEG image as stored, in pixels, whether its metadata may rotate it, its coding, where it begins."""

    width: int
    height: int
    may_be_rotated: bool
    is_progressive: bool
    start: int  # in the file, behind any thumbnail


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
            return JpegHeader(width, height, may_be_rotated, marker == PROGRESSIVE_MARKER, at)
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


def bare_png(encoded: bytes) -> bytes:
    """Return a PNG file with its pixels alone, since libpng prints what is wrong with other chunks."""
    at, parts = PNG_SIGNATURE_BYTES, [encoded[:PNG_SIGNATURE_BYTES]]
    while at + PNG_CHUNK.size <= len(encoded):
        length, name = PNG_CHUNK.unpack_from(encoded, at)
        end = at + PNG_CHUNK.size + length + PNG_CHECKSUM_BYTES
        parts += [encoded[at:end]] if name in PNG_NEEDED else []
        at = end
    return b"".join(parts)


def check_by_pillow(image: "Image.Image", content: bytes, share: regular.Share | None = None) -> None:
    """Raise BadSample if decoding an image by Pillow would take too much time or memory for its file.

    Args:
        share: of pixels that the file may ask for; None for that of an image that becomes RGB.
    """
    share = share or (regular.IN_FRAMES if image.format in FRAMES_KEPT else regular.BY_PILLOW)
    sizes = [image.size]
    if image.format == "TIFF":  # its tiles may be larger than the image
        tags = image.getexif()
        sizes.append((tags.get(TILE_SIZE[0], 0), tags.get(TILE_SIZE[1], 0)))
    for size in sizes:
        regular.check_share(*size, len(content), share)
    check_scans(*image.size, content)
    header = _jpeg_frame(content) if content.startswith(JPEG_START) else None
    if header and content.find(JPEG_END, header.start) < 0:  # decoders take zeros in its place for pixels
        raise BadSample("it breaks off, as after an interrupted copy: the end of the image is missing")


def check_scans(width: int, height: int, content: bytes) -> None:
    """Raise BadSample if a file is a JPEG image with so many scans that decoding them takes long."""
    if width * height * len(content) <= CHECKED_WORK or not content.startswith(JPEG_START):
        return
    header = _jpeg_frame(content)  # whatever follows the image
    is_baseline = header is not None and not header.is_progressive
    limit = MAX_SCANS + (len(content) // BYTES_PER_SCAN if is_baseline else 0)
    if content.count(JPEG_SCAN) > limit:
        raise BadSample(f"it has more than {limit} scans")


def open_header(content: bytes) -> "Image.Image":
    """Read the header of an image. Raises BadSample, and errors of Pillow."""
    if content.startswith(PLAIN_FORMATS):
        raise BadSample("pixels written as text are not supported")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except PIL.UnidentifiedImageError:
        raise BadSample(f"not an image of a supported format{_what_else(content)}") from None
    regular.check_pixels(*image.size)
    return image


def _what_else(content: bytes) -> str:
    """Return the end of a message on a file that Pillow cannot open: what it is, and the remedy; "" if not known."""
    if not content.startswith(TIFF_STARTS):
        return next((f", but {kind}" for pattern, kind in OTHER_KINDS.items() if re.match(pattern, content)), "")
    tags = Image.Exif()
    with suppress(Exception):  # a damaged one, which may raise anything
        tags.load(content)
    bits = tags.get(BITS, (1,))
    bands, bits = tags.get(BANDS, 1), bits if isinstance(bits, int) else max(bits)
    return (
        f", but a TIFF image of {bands} band{'s' * (bands != 1)} of {bits} bits; write 8-bit RGB or gray, such as by "
        "gdal_translate -ot Byte -scale -b 1 -b 2 -b 3"
    )
