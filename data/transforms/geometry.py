"""Geometry of a sample's image: which part of the stored pixels it shows, how large, and mirrored or not.

A geometry is drawn before any pixel is read. So every loader that carries it out gives the same image.
"""

from typing import NamedTuple

Box = tuple[int, int, int, int]  # left, top, width, height
Size = tuple[int, int]  # width, height


class Geometry(NamedTuple):
    """Steps from an upright image to that of a sample, in the order of the attributes; None leaves a step out.

    Attributes:
        box: part of the image that is kept.
        size: to which that part is resized, bilinear.
        antialias: see data/transforms/resize.py.
        window: part of the resized image that is kept.
        flip: mirror horizontally.
        canvas: size to which the image is padded at the bottom and on the right, where it is smaller.
        fill: padding, a value per channel.
    """

    box: Box | None = None
    size: Size | None = None
    antialias: bool = False
    window: Box | None = None
    flip: bool = False
    canvas: Size | None = None
    fill: tuple[int, ...] = (0, 0, 0)


def short_side_size(size: Size, short_side: int) -> Size:
    """Return the size with its shorter side changed to `short_side` and the longer one in proportion, truncated."""
    width, height = size
    if width < height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side
