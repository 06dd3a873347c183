"""Drawn streets with their labels: a pinhole camera in a street canyon, everything painted from far to near.

Only numpy's exact arithmetic in 64 bits (no exponentials, no matrix products), so that no processor rounds a pixel
otherwise. Colours are drawn from lists that overlap between classes, and light, tint and haze change from picture to
picture: what a pixel is takes its place, its texture and its surroundings to tell.

Axes: x to the right and z ahead, in metres from the camera; up, in metres above the ground.
"""

from collections.abc import Sequence
from typing import NamedTuple, Union

import numpy as np

HEIGHT, WIDTH = 128, 256  # pixels
EGO, BORDER, STATIC, DYNAMIC = 1, 2, 4, 5  # ids of Cityscapes, as all labels here; these four are not evaluated
ROAD, SIDEWALK, BUILDING, POLE, LIGHT, SIGN, VEGETATION, SKY, PERSON, CAR = 7, 8, 11, 17, 19, 20, 21, 23, 24, 26
FAR = 40.0  # metres: where the street ends in a row of houses
QUARTER = [(1, 0), (0.92, 0.38), (0.71, 0.71), (0.38, 0.92)]
CIRCLE = QUARTER + [(-y, x) for x, y in QUARTER] + [(-x, -y) for x, y in QUARTER] + [(y, -x) for x, y in QUARTER]
SIGNS = [
    CIRCLE,
    CIRCLE,
    CIRCLE[1::2],
    [(-1, -0.7), (1, -0.7), (0, 1.1)],
    [(-1, 0), (0, 1), (1, 0), (0, -1)],
    [(-0.85, -1), (0.85, -1), (0.85, 1), (-0.85, 1)],
]
SIGN_COLOURS = [(190, 40, 45), (40, 80, 170), (225, 190, 50), (225, 225, 220), (60, 120, 80)]
CAR_COLOURS = [
    (200, 200, 200),
    (60, 60, 65),
    (120, 122, 126),
    (150, 40, 40),
    (50, 75, 130),
    (70, 95, 65),
    (190, 170, 120),
    (225, 225, 225),
]
CLOTHES = [(40, 45, 85), (60, 60, 62), (175, 45, 45), (65, 115, 145), (205, 200, 190), (205, 175, 60)]
WALLS = [
    (150, 90, 70),
    (185, 165, 130),
    (130, 130, 130),
    (200, 195, 185),
    (110, 120, 100),
    (120, 135, 160),
    (95, 80, 75),
    (190, 140, 110),
]
LEAVES = [(70, 100, 45), (55, 80, 50), (105, 115, 50), (135, 100, 45), (95, 90, 65)]
METAL = [(58, 63, 64), (75, 76, 74)]

Point = tuple[float, float]  # x and y in pixels, from the upper left corner
Place = tuple[slice, slice]  # rows and columns
Number = Union[float, np.ndarray]


def pick(rng: np.random.Generator, colours: Sequence, spread: float = 12) -> np.ndarray:
    """One of the colours, a little changed: (3, 1, 1), as pictures are here."""
    return np.reshape(colours[int(rng.integers(len(colours)))] + rng.uniform(-spread, spread, 3), (3, 1, 1))


def noise(rng: np.random.Generator, height: int, width: int, step: float) -> np.ndarray:
    """Smooth noise in [-1, 1]: (height, width), bilinear between random values `step` pixels apart."""
    knots = [int(side / step) + 2 for side in (height, width)]
    values = rng.uniform(-1, 1, knots)
    y, x = (np.arange(side) / step for side in (height, width))
    row, column = y.astype(int), x.astype(int)
    right, down = x - column, (y - row)[:, None]
    lines = values[:, column] * (1 - right) + values[:, column + 1] * right
    return lines[row] * (1 - down) + lines[row + 1] * down


def pulse(places: np.ndarray, width: Number, duty: Number) -> np.ndarray:
    """Which share of [places - width / 2, places + width / 2] lies in the first `duty` of a whole number's unit.

    Stripes that fade to their mean with distance, as a camera sees them.
    """

    def total(end):
        whole = np.floor(end)
        return whole * duty + np.minimum(end - whole, duty)

    return (total(places + width / 2) - total(places - width / 2)) / width


def band(places: np.ndarray, middle: float, half: float, width: Number) -> np.ndarray:
    """Which share of a pixel `width` wide a single stripe covers."""
    ends = np.minimum(places + width / 2, middle + half) - np.maximum(places - width / 2, middle - half)
    return share(ends / width - 0.5)


def share(inside: np.ndarray) -> np.ndarray:
    """How much of a pixel is covered whose middle lies so many pixels inside an edge."""
    return np.minimum(np.maximum(inside + 0.5, 0), 1)


class Canvas:
    """A picture and its labels, painted together: what hides a colour hides its label.

    picture: float64 (3, H, W), 0 to 255. labels: uint8 (H, W).
    """

    def __init__(self, height: int = HEIGHT, width: int = WIDTH):
        self.picture, self.labels = np.zeros((3, height, width)), np.zeros((height, width), np.uint8)
        self.y, self.x = np.mgrid[:height, :width] + 0.5

    def paint(self, cover: np.ndarray, colour: Number, label: Number | None, place: Place) -> None:
        """Mix in a colour, (3, h or 1, w or 1), by its cover (h, w) in [0, 1]; labels go by the larger part of a pixel.

        label: an id or an array of them; None paints light or shadow on what is there.
        """
        picture = self.picture[(slice(None),) + place]
        picture += cover * (colour - picture)
        if label is not None:
            np.copyto(self.labels[place], np.uint8(label), where=cover >= 0.5)

    def window(self, left: float, top: float, right: float, bottom: float):
        """The pixels that a box touches, as slices, and their middles y (h, 1) and x (1, w)."""
        height, width = self.labels.shape
        rows = slice(int(min(max(top - 1, 0), height)), int(min(max(bottom + 2, 0), height)))
        columns = slice(int(min(max(left - 1, 0), width)), int(min(max(right + 2, 0), width)))
        return (rows, columns), self.y[rows, :1], self.x[:1, columns]

    def polygon(self, points: Sequence[Point], colour: Number, label: int | None, strength: float = 1) -> None:
        """A convex area; its corners, all different, in either direction of turning."""
        corners = np.asarray(points, float)
        place, y, x = self.window(*corners.min(0), *corners.max(0))
        ends = np.concatenate([corners[1:], corners[:1]])
        turning = (corners[:, 0] * ends[:, 1] - corners[:, 1] * ends[:, 0]).sum()
        edges = (ends - corners) * (1 if turning > 0 else -1)
        right, down = (edges / np.sqrt((edges * edges).sum(1))[:, None]).T[:, :, None, None]
        corner_x, corner_y = corners.T[:, :, None, None]
        inside = (right * (y - corner_y) - down * (x - corner_x)).min(0)  # pixels from the nearest edge: (h, w)
        self.paint(share(inside) * strength, colour, label, place)

    def rectangle(self, corner: Point, opposite: Point, colour: Number, label: int | None) -> None:
        """An upright area between two corners, the upper left one first."""
        (left, top), (right, bottom) = corner, opposite
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour, label)

    def capsule(self, start: Point, end: Point, radius: float, colour: Number, label: int | None) -> None:
        """All points within `radius` of a line; a disc if it has no length."""
        (x0, y0), (x1, y1) = start, end
        place, y, x = self.window(
            min(x0, x1) - radius, min(y0, y1) - radius, max(x0, x1) + radius, max(y0, y1) + radius
        )
        length = (x1 - x0) ** 2 + (y1 - y0) ** 2
        along = share(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length - 0.5) if length else 0.0
        away = np.sqrt((x - x0 - along * (x1 - x0)) ** 2 + (y - y0 - along * (y1 - y0)) ** 2)
        self.paint(share(radius - away), colour, label, place)


class View(NamedTuple):
    """A camera that looks straight along a street, and the air in it."""

    focal: float  # pixels
    height: float  # metres above the ground
    centre: float  # column and ...
    horizon: float  # ... row of the point where the street vanishes
    haze: np.ndarray  # colour of what is far away
    left: float  # x of the road's edges, in metres ...
    right: float
    walk: float  # ... and the width of the pavements beside it

    def point(self, x: float, up: float, z: float) -> Point:
        """Where a place is seen."""
        return self.centre + self.focal * x / z, self.horizon + self.focal * (self.height - up) / z

    def hazed(self, colour: np.ndarray, z: Number) -> np.ndarray:
        """A colour seen from z metres away."""
        return colour + (self.haze - colour) * (z / (z + 180))


def sky(canvas: Canvas, v: View, rng: np.random.Generator, above: np.ndarray) -> None:
    """Everything over the horizon, from the colour `above` to that of the haze, with clouds."""
    place = (slice(0, int(v.horizon)), slice(None))
    height, width = canvas.labels[place].shape
    clouds = noise(rng, height, width, 40) + 0.5 * noise(rng, height, width, 14)
    down = share(canvas.y[place] / 60 - 0.5) + clouds * rng.uniform(0, 0.4)
    canvas.paint(np.ones((height, width)), above + (v.haze - above) * down, SKY, place)


def ground(canvas: Canvas, v: View, rng: np.random.Generator) -> None:
    """Pavements with tiles and kerbs, and between them the road with its marks; perhaps the shadow of the houses."""
    place = (slice(int(v.horizon), None), slice(None))
    y, across = canvas.y[place][:, :1], canvas.x[:1]
    height, width = y.size, across.size
    z = v.focal * v.height / (y - v.horizon)
    metre, depth = z / v.focal, z / (y - v.horizon)  # width and depth of a pixel on the ground
    x = (across - v.centre) * metre

    stone = pick(rng, [(150, 145, 140), (125, 125, 128), (165, 150, 135)]) + rng.uniform(-10, 10)
    joints = np.maximum(pulse(x / 0.8, metre / 0.8, 0.12), pulse(z / 0.8, depth / 0.8, 0.12))
    kerbs = band(x, v.left - 0.12, 0.12, metre) + band(x, v.right + 0.12, 0.12, metre)
    light = 1 - 0.3 * joints * (1 - kerbs) + 0.25 * kerbs + 0.1 * noise(rng, height, width, 9)
    canvas.paint(np.ones((height, width)), stone * light, SIDEWALK, place)

    asphalt = pick(rng, [(95, 95, 98), (75, 75, 80), (120, 117, 112)], 6) + rng.uniform(-12, 12)
    grain = rng.uniform(-1, 1, (height, width))
    colour = asphalt * (1 + 0.12 * noise(rng, height, width, 30) + 0.06 * grain)
    middle = v.left + (v.right - v.left) * rng.uniform(0.42, 0.58)
    marks = band(x, middle, 0.1, metre) * pulse(z / 6 + rng.uniform(), depth / 6, 0.55)
    for edge, inwards in ((v.left, 1), (v.right, -1)):
        if rng.random() < 0.5:
            marks = np.maximum(marks, band(x, edge + inwards * 0.35, 0.08, metre))
    if rng.random() < 0.35:  # a crossing
        start = rng.uniform(7, 14)
        marks = np.maximum(marks, pulse(x, metre, 0.5) * band(z, start + 1.5, 1.5, depth))
    colour += marks * rng.uniform(0.7, 1) * (215 - colour)
    canvas.paint(share(np.minimum(x - v.left, v.right - x) / metre), colour, ROAD, place)
    if rng.random() < 0.6:
        edge, side = rng.uniform(-6, 6), rng.choice([-1, 1])
        canvas.paint(share((x - edge) * side / metre) * 0.4, 0.0, None, place)
    picture = canvas.picture[:, place[0]]
    picture[:] = v.hazed(picture, z)


def far_end(canvas: Canvas, v: View, rng: np.random.Generator) -> None:
    """What closes the street: houses and trees, all as far away."""
    x = -50.0
    while x < 50:
        wide, high = rng.uniform(6, 16), rng.uniform(4, 10)
        (left, top), (right, bottom) = v.point(x, high, FAR), v.point(x + wide, 0, FAR)
        wall, leaves = v.hazed(pick(rng, WALLS), FAR), v.hazed(pick(rng, LEAVES), FAR)
        canvas.rectangle((left, top), (right, bottom), wall, BUILDING)
        place, y, column = canvas.window(left, top + 2, right, bottom - 2)
        panes = pulse((column - left) / 4, 0.25, 0.5) * pulse((y - top) / 5, 0.2, 0.5)
        canvas.paint(panes * 0.45, wall * 0.4, None, place)
        if rng.random() < 0.4:
            size = rng.uniform(9, 14)
            crown(canvas, rng, ((left + right) / 2, bottom - size), size, leaves)
        x += wide


def houses(canvas: Canvas, v: View, rng: np.random.Generator, side: int) -> None:
    """The row of houses along one side of the street; some are hedges instead."""
    offset = v.walk + (v.right if side > 0 else -v.left)
    nearest = v.focal * offset / canvas.labels.shape[1]
    cuts = nearest + np.concatenate([[0.0], np.cumsum(rng.uniform(5, 13, 20))])
    hedge = rng.random(len(cuts)) < 0.2
    high = np.where(hedge, rng.uniform(3, 4.5, len(cuts)), rng.uniform(5, 11, len(cuts)))
    fronts = np.concatenate([pick(rng, LEAVES if leafy else WALLS) for leafy in hedge], 2) * rng.uniform(0.75, 1.1)
    glass = np.concatenate([pick(rng, [(55, 60, 70), (90, 105, 120), (120, 130, 140)]) for _ in cuts], 2)
    pitch, sill = rng.uniform(2.2, 3.2, (2, len(cuts))), rng.uniform(0.35, 0.6, len(cuts)) * ~hedge
    panes = rng.uniform(0.7, 1.5, (16, 16))  # each reflects another part of the sky

    seen = np.flatnonzero((canvas.x[0] - v.centre) * side > v.focal * offset / FAR)
    place = (slice(None), slice(seen[0], seen[-1] + 1))
    y, x = canvas.y[:, :1], canvas.x[:1, place[1]]
    z = v.focal * offset / np.abs(x - v.centre)
    which = np.searchsorted(cuts, z[0], side="right") - 1  # house of a column
    metre, depth = z / v.focal, z / np.abs(x - v.centre)  # of a pixel, upwards and along the street
    up = v.height - (y - v.horizon) * metre
    along, floors = z / pitch[0][which], up / pitch[1][which]
    windows = pulse(along, depth / pitch[0][which], 0.55) * pulse(floors, metre / pitch[1][which], sill[which])
    mirrored = panes[np.floor(along).astype(int) % 16, np.floor(floors).astype(int) % 16]
    light = np.where(hedge[which], leaf_light(rng, y.size, x.size), 1 + 0.07 * noise(rng, y.size, x.size, 5))
    colour = fronts[:, :, which] * light
    colour += windows * (glass[:, :, which] * mirrored - colour)
    top = high[which] + hedge[which] * 0.4 * noise(rng, y.size, x.size, 4)
    labels = np.where(hedge[which], VEGETATION, BUILDING)
    canvas.paint(share(np.minimum(top - up, up) / metre), v.hazed(colour, z), labels, place)


def leaf_light(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """How bright leaves are: (height, width), clumps and single leaves."""
    return 1 + 0.35 * noise(rng, height, width, 5) + 0.3 * noise(rng, height, width, 1.7)


def crown(canvas: Canvas, rng: np.random.Generator, centre: Point, radius: float, colour: np.ndarray) -> None:
    """A heap of leaves: discs with a ragged edge, lit from above. radius: pixels."""
    (middle, height), reach = centre, 1.2 * radius
    place, y, x = canvas.window(middle - reach, height - reach, middle + reach, height + reach)
    right, down = rng.uniform(-0.55, 0.55, (2, 12, 1, 1)) * radius
    away = np.sqrt((x - middle - right) ** 2 + (y - height - down) ** 2)
    inside = (rng.uniform(0.35, 0.55, (12, 1, 1)) * radius - away).max(0)
    inside += min(0.15 * radius, 2) * noise(rng, y.size, x.size, 2.5)
    light = leaf_light(rng, y.size, x.size) - 0.3 * (y - height) / radius
    canvas.paint(share(inside), colour * light, VEGETATION, place)


def shadow(canvas: Canvas, v: View, x: float, z: float, wide: float, deep: float) -> None:
    """Darker ground around a place."""
    canvas.polygon([v.point(x + wide * right, 0, z + deep * ahead) for right, ahead in CIRCLE[::2]], 0.0, None, 0.4)


def tree(canvas: Canvas, v: View, rng: np.random.Generator, x: float, z: float) -> None:
    """A trunk with a crown, all of it vegetation."""
    metre, radius, high = v.focal / z, rng.uniform(1.2, 2.2), rng.uniform(3.2, 4.8)
    shadow(canvas, v, x, z, radius * 0.7, radius * 0.5)
    bark = v.hazed(pick(rng, [(85, 65, 50), (95, 90, 85)]), z)
    canvas.capsule(v.point(x, 0.1, z), v.point(x, high, z), max(0.13 * metre, 0.9), bark, VEGETATION)
    crown(canvas, rng, v.point(x, high, z), radius * metre, v.hazed(pick(rng, LEAVES), z))


def block(
    canvas: Canvas,
    v: View,
    low: Sequence[float],
    high: Sequence[float],
    taper: Sequence[float],
    colour: np.ndarray,
    label: int,
    panes: np.ndarray | None = None,
) -> None:
    """A box from `low` to `high`, each (x, up, z), its roof drawn in by taper (x, z), and panes in its sides."""
    (x0, bottom, z0), (x1, top, z1) = low, high
    feet = [(x0, bottom, z0), (x1, bottom, z0), (x1, bottom, z1), (x0, bottom, z1)]
    dx, dz = taper
    roof = [(x0 + dx, top, z0 + dz), (x1 - dx, top, z0 + dz), (x1 - dx, top, z1 - dz), (x0 + dx, top, z1 - dz)]
    sides = [(3, 0)] if x0 > 0 else [(1, 2)] if x1 < 0 else []  # as far as they are seen; the near one comes last
    for shade, corners in [(0.7, [feet[a], feet[b], roof[b], roof[a]]) for a, b in sides] + [
        (1.2, roof if top < v.height else []),
        (1.0, [feet[0], feet[1], roof[1], roof[0]]),
    ]:
        if corners:
            middle = np.asarray(corners).sum(0) / 4
            canvas.polygon([v.point(*corner) for corner in corners], v.hazed(colour * shade, middle[2]), label)
            if panes is not None and shade <= 1:
                inner = middle + (np.asarray(corners) - middle) * 0.8
                canvas.polygon([v.point(*corner) for corner in inner], v.hazed(panes * shade, middle[2]), label)


def car(canvas: Canvas, v: View, rng: np.random.Generator, x: float, z: float, across: bool) -> None:
    """A car that drives along the street, or across it. z: its nearest part."""
    long, wide, roof = rng.uniform(3.8, 4.6), rng.uniform(1.7, 1.9), rng.uniform(1.4, 1.7)
    half, deep = (long / 2, wide) if across else (wide / 2, long)
    paint, glass, tyre = pick(rng, CAR_COLOURS), pick(rng, [(40, 45, 52), (75, 85, 95)]), 26.0
    shadow(canvas, v, x, z + deep / 2, half * 1.15, deep * 0.55)
    for right in (-half + 0.3, half - 0.3):
        canvas.rectangle(v.point(x + right - 0.15, 0.5, z), v.point(x + right + 0.15, 0, z), tyre, CAR)
    block(canvas, v, (x - half, 0.25, z), (x + half, 0.9, z + deep), (0.03, 0.03), paint, CAR)
    if across:
        wheels = [(x + right, z, 0.33, 0) for right in (-half + 0.8, half - 0.8)]
    else:
        flank = x - half if x > 0 else x + half
        wheels = [(flank, z + ahead, 0, 0.33) for ahead in (0.8, deep - 0.8)] if abs(x) > half else []
        lamp = pick(rng, [(200, 40, 40), (235, 235, 215)], 10)
        for right in (-half + 0.2, half - 0.2):
            spot = [v.point(x + right + 0.16 * a, 0.7 + 0.1 * b, z) for a, b in CIRCLE[::2]]
            canvas.polygon(spot, lamp, CAR)
    for wheel_x, wheel_z, to_x, to_z in wheels:
        rim = [v.point(wheel_x + to_x * a, 0.33 + 0.33 * b, wheel_z + to_z * a) for a, b in CIRCLE[::2]]
        canvas.polygon(rim, tyre, CAR)
    margin = long * 0.14
    side, end = (margin, 0.08) if across else (0.08, margin)
    block(
        canvas,
        v,
        (x - half + side, 0.9, z + end),
        (x + half - side, roof, z + deep - end),
        (side * 0.8, end * 0.8),
        paint,
        CAR,
        glass,
    )


def person(canvas: Canvas, v: View, rng: np.random.Generator, x: float, z: float) -> None:
    """Somebody who stands or walks: legs, body, arms, hair and face."""
    coat, legs, skin, hair = (
        v.hazed(pick(rng, colours), z)
        for colours in (
            CLOTHES,
            CLOTHES,
            [(205, 160, 135), (130, 90, 70)],
            [(60, 45, 35), (150, 120, 80), (40, 40, 42)],
        )
    )
    size, stride, swing = rng.uniform(0.95, 1.1), rng.uniform(-0.25, 0.25), rng.uniform(0, 0.2)
    shadow(canvas, v, x, z, 0.4, 0.3)

    def limb(right, up, right_end, up_end, thick, colour):
        canvas.capsule(
            v.point(x + right * size, up * size, z),
            v.point(x + right_end * size, up_end * size, z),
            thick * size * v.focal / z,
            colour,
            PERSON,
        )

    limb(-0.1, 0.9, -0.1 - stride, 0.1, 0.14, legs * 0.85)
    limb(0.1, 0.9, 0.1 + stride, 0.1, 0.14, legs)
    limb(0, 1.3, 0, 0.95, 0.28, coat)
    limb(-0.24, 1.38, -0.3 - swing, 0.85, 0.11, coat * 0.85)
    limb(0.24, 1.38, 0.3 + swing, 0.85, 0.11, coat * 0.85)
    limb(0, 1.7, 0, 1.7, 0.18, hair)
    limb(0, 1.66, 0, 1.62, 0.15, skin)


def pole(canvas: Canvas, v: View, rng: np.random.Generator, x: float, z: float, head: str) -> None:
    """A pole, 3 to 6 pixels wide, that carries a `sign`, a `light`, a `lamp` over the road or nothing (``)."""
    metre, metal = v.focal / z, v.hazed(pick(rng, METAL), z)
    half = min(max(rng.uniform(0.12, 0.18) * metre, 1.7), 3)
    tall = {"sign": rng.uniform(2.9, 3.5), "light": rng.uniform(3, 3.6)}.get(head, rng.uniform(5, 7.5))
    (middle, foot), (_, top) = v.point(x, 0, z), v.point(x, tall, z)
    canvas.rectangle((middle - half, top), (middle + half, foot), metal, POLE)
    if head == "lamp":
        end = middle + (-1 if x > 0 else 1) * rng.uniform(1.2, 2) * metre
        canvas.capsule((middle, top), (end, top - 2), 1.1, metal, POLE)
    elif head == "sign":
        sign(canvas, rng, (middle, top), max(rng.uniform(0.7, 0.9) * metre, 10))
    elif head == "light":
        lights(canvas, rng, (middle, top), max(0.38 * metre, 6))


def sign(canvas: Canvas, rng: np.random.Generator, centre: Point, radius: float) -> None:
    """A plate of any usual shape, with a rim and a mark."""
    shape, (x, y) = SIGNS[int(rng.integers(len(SIGNS)))], centre
    for size in (radius, 0.68 * radius):  # the rim and what it encloses
        corners = [(x + right * size, y - up * size) for right, up in shape]
        canvas.polygon(corners, pick(rng, SIGN_COLOURS, 15), SIGN)
    mark = pick(rng, [(30, 30, 30), (230, 230, 225), (190, 40, 45)])
    canvas.capsule((x - 0.25 * radius, y), (x + 0.25 * radius, y), 0.13 * radius, mark, SIGN)


def lights(canvas: Canvas, rng: np.random.Generator, centre: Point, half: float) -> None:
    """Three lamps in a dark case of 2 x half by 5 x half pixels; one or two of them are lit."""
    case, (x, y) = pick(rng, [(35, 38, 36), (60, 62, 55), (25, 25, 28)], 6), centre
    canvas.rectangle((x - half, y - 2.5 * half), (x + half, y + 2.5 * half), case, LIGHT)
    lit = [(0,), (1,), (2,), (0, 1)][int(rng.integers(4))]
    for place, lamp in enumerate([(250, 60, 50), (250, 190, 60), (70, 235, 150)]):
        spot, glow = (x, y + (place - 1) * 1.5 * half), pick(rng, [lamp], 5) if place in lit else case * 0.4 + 15
        canvas.capsule(spot, spot, 0.62 * half, glow, LIGHT)


def litter(canvas: Canvas, v: View, rng: np.random.Generator, x: float, z: float, label: int) -> None:
    """A bin that stands still (STATIC) or a cart on wheels (DYNAMIC)."""
    wide, high, metre = rng.uniform(0.3, 0.5), rng.uniform(0.8, 1.3), v.focal / z
    colour = pick(rng, [(70, 90, 70), (110, 80, 50), (90, 95, 100)])
    shadow(canvas, v, x, z + wide, wide * 1.3, wide)
    block(canvas, v, (x - wide, 0.2, z), (x + wide, high, z + 2 * wide), (0.05, 0.05), colour, label)
    if label == DYNAMIC:
        for place in (x - wide, x + wide):
            canvas.capsule(v.point(place, 0.2, z), v.point(place, 0.2, z), 0.2 * metre, colour * 0.4, label)
        canvas.capsule(
            v.point(x + wide, high, z), v.point(x + wide * 1.8, high + 0.25, z), 0.08 * metre, colour * 0.6, label
        )
