"""Class maps for the eye: their colours over the picture, a legend that names them, as PNG files and as mp4."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from data.errors import BadSample
from data.formats.video import FAILURES

Frame = tuple[np.ndarray, Fraction]  # (H, W, 3) uint8 RGB; frames per second

SMALL = 512  # pixels: a picture whose longer side is at most half of it is enlarged, by a whole factor
FONT, SHARE = 14, 1 / 32  # pixels, at least; of the picture's shorter side
MOST = 40  # entries of a legend
LONGEST = 32  # letters of a name in it
INK, EDGE, PAPER = (20, 20, 20), (130, 130, 130), (255, 255, 255)


def blend(picture: np.ndarray, labels: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Half a picture (H, W, 3), half the colours (K, 3) of its labels (H, W); all uint8."""
    return ((picture.astype(np.uint16) + colours[labels]) // 2).astype(np.uint8)


def largest(shares: np.ndarray) -> list[int]:
    """The classes with a share above 0, largest first, equal ones in their own order."""
    return [int(label) for label in np.argsort(-shares, kind="stable") if shares[label] > 0]


def percent(share: float) -> str:
    """`41.2 %`; what is there but would round to nothing is `<0.1 %`."""
    return f"{100 * share:.1f} %" if share >= 0.0005 else "<0.1 %"


class Legend:
    """A strip beside or below pictures of one size, whichever makes the smaller whole. Small pictures are enlarged.

    labels: the classes that may occur, of names and colours (K, 3). Each has its own place in this order, so that
    nothing jumps in a video; if they are too many, the largest ones of a picture are named.
    """

    def __init__(self, height: int, width: int, names: Sequence[str], colours: np.ndarray, labels: Sequence[int]):
        self.names, self.colours, self.labels = [shortened(name) for name in names], colours, list(labels)
        self.factor = max(1, SMALL // max(height, width))
        height, width = height * self.factor, width * self.factor
        size = max(FONT, round(SHARE * min(height, width)))
        self.font, self.line = ImageFont.load_default(size), size * 3 // 2
        texts = [entry(self.names[label], 1) for label in labels] + [more(len(labels))]
        cell = round(max(map(self.font.getlength, texts))) + 3 * self.line
        room = min(len(labels), MOST)
        down, across = max(1, height // self.line), max(1, width // cell)  # how many fit beside and below
        beside = width + -(-room // down) * cell, max(height, min(room, down) * self.line)
        below = max(width, cell), height + -(-room // across) * self.line
        self.size = min(below, beside, key=lambda size: size[0] * size[1])  # width and height of the whole
        if self.size == below:
            self.places = [(i % across * cell, height + i // across * self.line) for i in range(room)]
        else:
            self.places = [(width + i // down * cell, i % down * self.line) for i in range(room)]

    def attach(self, picture: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """A picture (height, width, 3) uint8 and, in the strip, the classes that it shows by their shares (K,)."""
        whole = Image.new("RGB", self.size, PAPER)
        whole.paste(Image.fromarray(picture.repeat(self.factor, 0).repeat(self.factor, 1)))
        draw, named = ImageDraw.Draw(whole), self.labels
        if len(named) > len(self.places):
            named = largest(shares)
            if len(named) > len(self.places):
                left_out = len(named) - len(self.places) + 1
                named = named[:-left_out]
                self._write(draw, self.places[-1], more(left_out))
        for label, place in zip(named, self.places):
            if shares[label] > 0:
                self._write(draw, place, entry(self.names[label], shares[label]), self.colours[label])
        return np.asarray(whole)

    def _write(
        self, draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, colour: np.ndarray | None = None
    ) -> None:
        (x, y), line = place, self.line
        if colour is not None:
            box = (x + line // 3, y + line // 6, x + 2 * line, y + line - line // 6)
            draw.rectangle(box, tuple(map(int, colour)), EDGE)  # an edge: a colour may be as white as the paper
        draw.text((x + 2 * line + line // 3, y + line // 2), text, INK, self.font, anchor="lm")


def entry(name: str, share: float) -> str:
    return f"{name}  {percent(share)}"


def more(count: int) -> str:
    return f"and {count} more"


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def write_picture(path: str, pixels: np.ndarray) -> None:
    """(H, W, 3) uint8 RGB as PNG."""
    Image.fromarray(pixels).save(path, "PNG")


def write_labels(path: str, labels: np.ndarray, colours: np.ndarray) -> None:
    """Labels (H, W) uint8 as a PNG of 8-bit indices, which viewers show in the colours (K, 3)."""
    image = Image.fromarray(labels)
    image.putpalette(colours.tobytes())
    image.save(path, "PNG")


def read_video(path: str) -> Iterator[Frame]:
    """Every frame of a video, upright. Raises BadSample, also in the middle."""
    shape = None
    try:
        with av.open(path, metadata_errors="ignore") as container:
            stream = container.streams.best("video")
            if stream is None:
                raise BadSample("there is no video in this file")
            for frame in container.decode(stream):
                pixels = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)  # counterclockwise
                if shape not in (None, pixels.shape):
                    raise BadSample("its frames differ in size")
                shape = pixels.shape
                yield np.ascontiguousarray(pixels), stream.average_rate or Fraction(25)
    except FAILURES as error:
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise BadSample(f"cannot be decoded as video ({reason[:160]})") from None
    if shape is None:
        raise BadSample("there is no frame in this video")


def write_video(path: str, frames: Iterable[Frame]) -> None:
    """Frames of one size as H.264 in mp4. Raises BadSample if the encoder refuses them."""
    try:
        with av.open(path, "w", format="mp4") as container:
            stream = None
            for pixels, rate in frames:
                height, width = pixels.shape[:2]
                if stream is None:
                    stream = container.add_stream("libx264", rate=rate)
                    stream.width, stream.height, stream.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
                    stream.options = {"crf": "20"}
                even = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), "edge")  # colours cover 2 x 2 pixels
                container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
            if stream is not None:
                container.mux(stream.encode())
    except av.error.FFmpegError as error:
        raise BadSample(f"its overlay cannot be encoded ({error})") from None
