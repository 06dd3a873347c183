"""The video that shows what was predicted: a line of text below every frame."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from zoo.data.transforms.geometry import Size
from zoo.data.transforms.resize import resize
from zoo.predict import overlay
from zoo.predict.streaming.report import Shown


def annotate(shown: Iterable[Shown], rate: Fraction, every: int, live: bool) -> Iterator[overlay.Frame]:
    """Yield the frames of the video, all of one size, with their rate.

    Args:
        shown: frames with the prediction that holds for them. Those of a live source are every n-th frame, some of them
            dropped: in place of a dropped one, the frame before stays, so that the video keeps the time.
        rate: frames per second of the source.
        every: n.
        live: whether the source is.
    """
    size: Size | None = None
    number, drawn = 0, None
    for item in shown:
        pixels = item.pixels
        height, width = pixels.shape[:2]
        size = size or (width, height)
        if size != (width, height):  # a stream may change it
            pixels = resize(pixels, *size, False)
        if live and drawn is not None:
            for _ in range((item.number - number) // every - 1):
                yield drawn, rate / every
        drawn, number = overlay.attach_caption(pixels, item.caption, item.remark), item.number
        yield drawn, rate / every if live else rate
