"""Predictions drawn over images: blended colors, a legend, a caption, PNG files and mp4 videos."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from zoo.data import durable
from zoo.data.errors import BadSample, parsing
from zoo.data.extras import Image, ImageDraw, ImageFont, av
from zoo.data.formats.keyframes import rgb_converter
from zoo.data.formats.video import NOT_DECODED, decode_all, open_container, video_stream

Frame = tuple[np.ndarray, Fraction]  # (H, W, 3) uint8 RGB; frames per second

ENLARGED_SIZE = 512  # pixels: smaller images are enlarged by the whole factor that keeps the longer side below it
MIN_FONT_SIZE = 14  # pixels
FONT_FRACTION, CAPTION_FRACTION = 1 / 32, 1 / 16  # of the shorter side
MIN_CAPTION_WIDTH = 320  # pixels: a caption needs room
MAX_NAME_LENGTH = 32  # letters of a class name in the legend
DEFAULT_FRAME_RATE = Fraction(25)  # of videos that do not state one
TEXT_COLOR, BORDER_COLOR, BACKGROUND_COLOR = (20, 20, 20), (130, 130, 130), (255, 255, 255)


def blend(image: np.ndarray, labels: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Mix an image (H, W, 3) in equal parts with the colors (K, 3) of its labels (H, W); all uint8."""
    return ((image.astype(np.uint16) + colors[labels]) // 2).astype(np.uint8)


def by_share(shares: np.ndarray) -> list[int]:
    """List the classes whose share is above 0, the largest first, equal ones in their own order."""
    return [int(label) for label in np.argsort(-shares, kind="stable") if shares[label] > 0]


def percent(share: float) -> str:
    """Format a share as `41.2 %`, or as `<0.1 %` if it would round to 0."""
    return f"{100 * share:.1f} %" if share >= 0.0005 else "<0.1 %"


class Legend:
    """A strip below images of one size, with a place for every class, so that entries do not move in a video.

    Small images are enlarged.
    """

    def __init__(self, height: int, width: int, names: Sequence[str], colors: np.ndarray, labels: Sequence[int]):
        """Lay out the strip.

        Args:
            height, width: of the images, in pixels.
            colors: of all classes, uint8 (K, 3).
            labels: the classes that may occur, in the order of their places.
        """
        self.names = [name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…" for name in names]
        self.colors, self.labels = colors, labels
        self.factor = max(1, ENLARGED_SIZE // max(height, width))
        height, width = height * self.factor, width * self.factor
        font_size = max(MIN_FONT_SIZE, round(FONT_FRACTION * min(height, width)))
        self.font, self.line_height = ImageFont.load_default(font_size), font_size * 3 // 2
        texts = [_entry(self.names[label], 1) for label in labels]
        column = round(max(map(self.font.getlength, texts))) + 3 * self.line_height
        count = max(1, width // column)  # columns
        self.places = [(i % count * column, height + i // count * self.line_height) for i in range(len(labels))]
        self.size = max(width, column), self.places[-1][1] + self.line_height  # width and height of image and strip

    def attach(self, image: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Draw the legend of an image.

        Args:
            image: uint8 (height, width, 3).
            shares: of the classes, (K,); those of 0 are left out.

        Returns:
            The image and the strip, uint8 (H, W, 3).
        """
        canvas = Image.new("RGB", self.size, BACKGROUND_COLOR)
        canvas.paste(Image.fromarray(image.repeat(self.factor, 0).repeat(self.factor, 1)))
        draw, line = ImageDraw.Draw(canvas), self.line_height
        for label, (x, y) in zip(self.labels, self.places):
            if shares[label] > 0:
                box = (x + line // 3, y + line // 6, x + 2 * line, y + line - line // 6)
                red, green, blue = map(int, self.colors[label])
                draw.rectangle(box, (red, green, blue), BORDER_COLOR)  # the border shows also a white color
                middle = (x + 2 * line + line // 3, y + line // 2)
                draw.text(middle, _entry(self.names[label], shares[label]), TEXT_COLOR, self.font, anchor="lm")
        return np.asarray(canvas)


def attach_caption(image: np.ndarray, caption: str, remark: str) -> np.ndarray:
    """Return an image uint8 (H, W, 3) with a strip below: the caption on the left, the remark on the right if it fits.

    An image narrower than MIN_CAPTION_WIDTH is enlarged by a whole factor.
    """
    factor = max(1, -(-MIN_CAPTION_WIDTH // image.shape[1]))
    image = image.repeat(factor, 0).repeat(factor, 1)
    height, width = image.shape[:2]
    font_size = max(MIN_FONT_SIZE, round(CAPTION_FRACTION * min(height, width)))
    font, strip = ImageFont.load_default(font_size), 2 * font_size
    canvas = Image.new("RGB", (width, height + strip), BACKGROUND_COLOR)
    canvas.paste(Image.fromarray(image))
    draw, middle = ImageDraw.Draw(canvas), height + strip // 2
    draw.text((font_size // 2, middle), caption, TEXT_COLOR, font, anchor="lm")
    if font.getlength(caption) + font.getlength(remark) + strip < width:
        draw.text((width - font_size // 2, middle), remark, BORDER_COLOR, font, anchor="rm")
    return np.asarray(canvas)


def _entry(name: str, share: float) -> str:
    return f"{name}  {percent(share)}"


def write_image(path: str, pixels: np.ndarray) -> None:
    """Write an image (H, W, 3) uint8 RGB as PNG."""
    with open(path, "wb", opener=durable.fresh) as file:
        Image.fromarray(pixels).save(file, "PNG")


def write_labels(path: str, labels: np.ndarray, colors: np.ndarray) -> None:
    """Write labels (H, W) uint8 as a PNG of 8-bit indices, which viewers show in the colors (K, 3)."""
    image = Image.fromarray(labels)
    image.putpalette(colors.tobytes())
    with open(path, "wb", opener=durable.fresh) as file:
        image.save(file, "PNG")


def read_video(path: str) -> Iterator[Frame]:
    """Yield every frame of a video, upright, in the size of the first one. Raises BadSample, perhaps after some."""
    with parsing(NOT_DECODED, kind=BadSample):
        with open_container(path) as container:
            rate = video_stream(container).average_rate or DEFAULT_FRAME_RATE
        convert, frame = rgb_converter(), None
        for frame in decode_all(path):
            yield np.ascontiguousarray(convert(frame)), rate
    if frame is None:
        raise BadSample("there is no frame in this video")


def write_video(path: str, frames: Iterable[Frame]) -> None:
    """Write frames of one size as H.264 in mp4, padded to even sides. Raises BadSample."""
    try:
        with open(path, "wb", opener=durable.fresh) as file, av.open(file, "w", format="mp4") as container:
            stream = None
            for pixels, rate in frames:
                height, width = pixels.shape[:2]
                if stream is None:
                    stream = container.add_stream("libx264", rate=rate)
                    stream.width, stream.height, stream.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
                    stream.options = {"crf": "20"}
                # yuv420p stores one color for 2 x 2 pixels.
                even = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
                container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
            if stream is not None:
                container.mux(stream.encode())
    except av.error.FFmpegError as error:
        raise BadSample(f"its overlay cannot be encoded ({error})") from None
