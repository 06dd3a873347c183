"""Drawn street scenes with labels: a camera in a street, its background from sky to houses, and objects on it.

Colors are picked from lists that overlap between classes, and light, tint and haze change from image to image. So
color alone does not give the class of a pixel; position, texture and surroundings do.

Axes: x to the right and z ahead, in meters from the camera; up, in meters above the ground.
"""

from typing import NamedTuple

import numpy as np

from zoo.data.demo.common import Canvas, Number, Point, coverage, pick_color, smooth_noise, stripe, stripes

HEIGHT, WIDTH = 128, 256  # pixels
EGO, BORDER, STATIC, DYNAMIC = 1, 2, 4, 5  # ids of Cityscapes, as all labels here; these four are ignored
ROAD = 7
SIDEWALK = 8
BUILDING = 11
POLE = 17
LIGHT = 19
SIGN = 20
VEGETATION = 21
SKY = 23
PERSON = 24
CAR = 26
FAR_END = 40.0  # meters: the distance of the row of houses at the end of the street
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
STONE = [(150, 145, 140), (125, 125, 128), (165, 150, 135)]
ASPHALT = [(95, 95, 98), (75, 75, 80), (120, 117, 112)]
GLASS = [(55, 60, 70), (90, 105, 120), (120, 130, 140)]


class View(NamedTuple):
    """A camera that looks straight along a street, and the haze in the air."""

    focal: float  # pixels
    height: float  # meters above the ground
    center: float  # column and ...
    horizon: float  # ... row of the vanishing point
    haze: np.ndarray  # color of distant things
    left: float  # x of the edges of the road, in meters ...
    right: float
    sidewalk: float  # ... and the width of the sidewalks beside it

    def project(self, x: float, up: float, z: float) -> Point:
        return self.center + self.focal * x / z, self.horizon + self.focal * (self.height - up) / z

    def add_haze(self, color: np.ndarray, z: Number) -> np.ndarray:
        """Return a color as it appears at a distance of z meters."""
        return color + (self.haze - color) * (z / (z + 180))


def paint_sky(canvas: Canvas, view: View, rng: np.random.Generator, zenith: np.ndarray) -> None:
    """Paint everything above the horizon, from the color `zenith` to that of the haze, with clouds."""
    region = (slice(0, int(view.horizon)), slice(None))
    height, width = canvas.labels[region].shape
    clouds = smooth_noise(rng, height, width, 40) + 0.5 * smooth_noise(rng, height, width, 14)
    down = coverage(canvas.y[region] / 60 - 0.5) + clouds * rng.uniform(0, 0.4)
    canvas.paint(np.ones((height, width)), zenith + (view.haze - zenith) * down, SKY, region)


def paint_ground(canvas: Canvas, view: View, rng: np.random.Generator) -> None:
    """Paint sidewalks with tiles and curbs, the road between them, and sometimes the shadow of the houses."""
    region = (slice(int(view.horizon), None), slice(None))
    y, column = canvas.y[region][:, :1], canvas.x[:1]
    height, width = y.size, column.size
    z = view.focal * view.height / (y - view.horizon)
    pixel_width, pixel_depth = z / view.focal, z / (y - view.horizon)  # of a pixel on the ground, in meters
    x = (column - view.center) * pixel_width

    stone = pick_color(rng, STONE) + rng.uniform(-10, 10)
    joints = np.maximum(stripes(x / 0.8, pixel_width / 0.8, 0.12), stripes(z / 0.8, pixel_depth / 0.8, 0.12))
    curbs = stripe(x, view.left - 0.12, 0.12, pixel_width) + stripe(x, view.right + 0.12, 0.12, pixel_width)
    light = 1 - 0.3 * joints * (1 - curbs) + 0.25 * curbs + 0.1 * smooth_noise(rng, height, width, 9)
    canvas.paint(np.ones((height, width)), stone * light, SIDEWALK, region)

    asphalt = pick_color(rng, ASPHALT, 6) + rng.uniform(-12, 12)
    grain = rng.uniform(-1, 1, (height, width))
    color = asphalt * (1 + 0.12 * smooth_noise(rng, height, width, 30) + 0.06 * grain)
    markings = _road_markings(view, rng, (x, pixel_width), (z, pixel_depth))
    color += markings * rng.uniform(0.7, 1) * (215 - color)
    canvas.paint(coverage(np.minimum(x - view.left, view.right - x) / pixel_width), color, ROAD, region)
    if rng.random() < 0.6:
        edge, side = rng.uniform(-6, 6), rng.choice([-1, 1])
        canvas.paint(coverage((x - edge) * side / pixel_width) * 0.4, 0.0, None, region)
    image = canvas.image[:, region[0]]
    image[:] = view.add_haze(image, z)


def _road_markings(
    view: View, rng: np.random.Generator, across: tuple[np.ndarray, np.ndarray], along: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the fraction of each pixel that is covered by lane markings and, sometimes, a crosswalk.

    Args:
        across: x of the pixels, and their width in meters.
        along: z of the pixels, and their depth in meters.
    """
    (x, pixel_width), (z, pixel_depth) = across, along
    middle = view.left + (view.right - view.left) * rng.uniform(0.42, 0.58)
    markings = stripe(x, middle, 0.1, pixel_width) * stripes(z / 6 + rng.uniform(), pixel_depth / 6, 0.55)
    for edge, inwards in ((view.left, 1), (view.right, -1)):
        if rng.random() < 0.5:
            markings = np.maximum(markings, stripe(x, edge + inwards * 0.35, 0.08, pixel_width))
    if rng.random() < 0.35:
        start = rng.uniform(7, 14)
        crosswalk = stripes(x, pixel_width, 0.5) * stripe(z, start + 1.5, 1.5, pixel_depth)
        markings = np.maximum(markings, crosswalk)
    return markings


def paint_far_end(canvas: Canvas, view: View, rng: np.random.Generator) -> None:
    """Paint the houses and trees at the end of the street, all at the same distance."""
    x = -50.0
    while x < 50:
        width, height = rng.uniform(6, 16), rng.uniform(4, 10)
        (left, top), (right, bottom) = view.project(x, height, FAR_END), view.project(x + width, 0, FAR_END)
        wall = view.add_haze(pick_color(rng, WALLS), FAR_END)
        leaves = view.add_haze(pick_color(rng, LEAVES), FAR_END)
        canvas.rectangle((left, top), (right, bottom), wall, BUILDING)
        region, y, column = canvas.window(left, top + 2, right, bottom - 2)
        windows = stripes((column - left) / 4, 0.25, 0.5) * stripes((y - top) / 5, 0.2, 0.5)
        canvas.paint(windows * 0.45, wall * 0.4, None, region)
        if rng.random() < 0.4:
            radius = rng.uniform(9, 14)
            paint_crown(canvas, rng, ((left + right) / 2, bottom - radius), radius, leaves)
        x += width


def paint_houses(canvas: Canvas, view: View, rng: np.random.Generator, side: int) -> None:
    """Paint the row of houses along one side of the street (-1 left, 1 right); some are hedges instead."""
    offset = view.sidewalk + (view.right if side > 0 else -view.left)
    nearest = view.focal * offset / canvas.labels.shape[1]
    borders = nearest + np.concatenate([[0.0], np.cumsum(rng.uniform(5, 13, 20))])
    is_hedge = rng.random(len(borders)) < 0.2
    heights = np.where(is_hedge, rng.uniform(3, 4.5, len(borders)), rng.uniform(5, 11, len(borders)))
    fronts = np.concatenate([pick_color(rng, LEAVES if hedge else WALLS) for hedge in is_hedge], 2)
    fronts = fronts * rng.uniform(0.75, 1.1)
    glass = np.concatenate([pick_color(rng, GLASS) for _ in borders], 2)
    spacing = rng.uniform(2.2, 3.2, (2, len(borders)))  # of windows along the wall, and of floors
    window_duty = rng.uniform(0.35, 0.6, len(borders)) * ~is_hedge
    reflections = rng.uniform(0.7, 1.5, (16, 16))  # each window reflects another part of the sky

    visible = np.flatnonzero((canvas.x[0] - view.center) * side > view.focal * offset / FAR_END)
    region = (slice(None), slice(visible[0], visible[-1] + 1))
    y, x = canvas.y[:, :1], canvas.x[:1, region[1]]
    z = view.focal * offset / np.abs(x - view.center)
    house = np.searchsorted(borders, z[0], side="right") - 1  # index of the house in each column
    pixel_height, pixel_depth = z / view.focal, z / np.abs(x - view.center)  # of a pixel on the wall, in meters
    up = view.height - (y - view.horizon) * pixel_height
    along, floors = z / spacing[0][house], up / spacing[1][house]
    windows = stripes(along, pixel_depth / spacing[0][house], 0.55) * stripes(
        floors, pixel_height / spacing[1][house], window_duty[house]
    )
    reflected = reflections[np.floor(along).astype(int) % 16, np.floor(floors).astype(int) % 16]
    light = np.where(is_hedge[house], _leaf_light(rng, y.size, x.size), 1 + 0.07 * smooth_noise(rng, y.size, x.size, 5))
    color = fronts[:, :, house] * light
    color += windows * (glass[:, :, house] * reflected - color)
    top = heights[house] + is_hedge[house] * 0.4 * smooth_noise(rng, y.size, x.size, 4)
    labels = np.where(is_hedge[house], VEGETATION, BUILDING)
    canvas.paint(coverage(np.minimum(top - up, up) / pixel_height), view.add_haze(color, z), labels, region)


def paint_crown(canvas: Canvas, rng: np.random.Generator, center: Point, radius: float, color: np.ndarray) -> None:
    """Paint the crown of a tree: discs with a ragged edge, lit from above. radius is in pixels."""
    (center_x, center_y), reach = center, 1.2 * radius
    region, y, x = canvas.window(center_x - reach, center_y - reach, center_x + reach, center_y + reach)
    right, down = rng.uniform(-0.55, 0.55, (2, 12, 1, 1)) * radius
    distance = np.sqrt((x - center_x - right) ** 2 + (y - center_y - down) ** 2)
    inside = (rng.uniform(0.35, 0.55, (12, 1, 1)) * radius - distance).max(0)
    inside += min(0.15 * radius, 2) * smooth_noise(rng, y.size, x.size, 2.5)
    light = _leaf_light(rng, y.size, x.size) - 0.3 * (y - center_y) / radius
    canvas.paint(coverage(inside), color * light, VEGETATION, region)


def _leaf_light(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return the brightness of leaves, clumps and single ones: (height, width)."""
    return 1 + 0.35 * smooth_noise(rng, height, width, 5) + 0.3 * smooth_noise(rng, height, width, 1.7)


QUARTER: list[tuple[float, float]] = [(1, 0), (0.92, 0.38), (0.71, 0.71), (0.38, 0.92)]
CIRCLE = QUARTER + [(-y, x) for x, y in QUARTER] + [(-x, -y) for x, y in QUARTER] + [(y, -x) for x, y in QUARTER]
SIGNS: list[list[tuple[float, float]]] = [
    CIRCLE,
    CIRCLE,
    CIRCLE[1::2],
    [(-1, -0.7), (1, -0.7), (0, 1.1)],
    [(-1, 0), (0, 1), (1, 0), (0, -1)],
    [(-0.85, -1), (0.85, -1), (0.85, 1), (-0.85, 1)],
]
SIGN_COLORS = [(190, 40, 45), (40, 80, 170), (225, 190, 50), (225, 225, 220), (60, 120, 80)]
CAR_COLORS = [
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
SKIN = [(205, 160, 135), (130, 90, 70)]
HAIR = [(60, 45, 35), (150, 120, 80), (40, 40, 42)]
METAL = [(58, 63, 64), (75, 76, 74)]
LAMPS = [(250, 60, 50), (250, 190, 60), (70, 235, 150)]  # red, yellow, green


def paint_shadow(canvas: Canvas, view: View, x: float, z: float, width: float, depth: float) -> None:
    """Darken the ground around a place."""
    outline = [view.project(x + width * right, 0, z + depth * ahead) for right, ahead in CIRCLE[::2]]
    canvas.polygon(outline, 0.0, None, 0.4)


def paint_tree(canvas: Canvas, view: View, rng: np.random.Generator, x: float, z: float) -> None:
    """Paint a trunk with a crown, all of it vegetation."""
    meter, radius, height = view.focal / z, rng.uniform(1.2, 2.2), rng.uniform(3.2, 4.8)
    paint_shadow(canvas, view, x, z, radius * 0.7, radius * 0.5)
    bark = view.add_haze(pick_color(rng, [(85, 65, 50), (95, 90, 85)]), z)
    foot, top = view.project(x, 0.1, z), view.project(x, height, z)
    canvas.capsule(foot, top, max(0.13 * meter, 0.9), bark, VEGETATION)
    paint_crown(canvas, rng, top, radius * meter, view.add_haze(pick_color(rng, LEAVES), z))


def paint_box(
    canvas: Canvas,
    view: View,
    low: tuple[float, float, float],
    high: tuple[float, float, float],
    taper: tuple[float, float],
    color: np.ndarray,
    label: int,
    windows: np.ndarray | None = None,
) -> None:
    """Paint a box between two corners (x, up, z).

    Args:
        taper: How much smaller the roof is than the floor on each side, in x and z.
        windows: Color of windows in the sides; None paints no windows.
    """
    (x0, bottom, z0), (x1, top, z1) = low, high
    floor = [(x0, bottom, z0), (x1, bottom, z0), (x1, bottom, z1), (x0, bottom, z1)]
    dx, dz = taper
    roof = [(x0 + dx, top, z0 + dz), (x1 - dx, top, z0 + dz), (x1 - dx, top, z1 - dz), (x0 + dx, top, z1 - dz)]
    visible_sides = [(3, 0)] if x0 > 0 else [(1, 2)] if x1 < 0 else []
    faces = [(0.7, [floor[a], floor[b], roof[b], roof[a]]) for a, b in visible_sides]
    if top < view.height:
        faces.append((1.2, roof))
    faces.append((1.0, [floor[0], floor[1], roof[1], roof[0]]))  # the near side hides the others
    for shade, corners in faces:
        middle = np.asarray(corners).sum(0) / 4
        canvas.polygon([view.project(*corner) for corner in corners], view.add_haze(color * shade, middle[2]), label)
        if windows is not None and shade <= 1:
            inner = middle + (np.asarray(corners) - middle) * 0.8
            glass = view.add_haze(windows * shade, middle[2])
            canvas.polygon([view.project(*corner) for corner in inner], glass, label)


def paint_car(canvas: Canvas, view: View, rng: np.random.Generator, x: float, z: float, across: bool) -> None:
    """Paint a car along the street, or across it. z is the distance of its nearest part."""
    length, width, roof = rng.uniform(3.8, 4.6), rng.uniform(1.7, 1.9), rng.uniform(1.4, 1.7)
    half, depth = (length / 2, width) if across else (width / 2, length)
    paint, glass = pick_color(rng, CAR_COLORS), pick_color(rng, [(40, 45, 52), (75, 85, 95)])
    tire = 26.0
    paint_shadow(canvas, view, x, z + depth / 2, half * 1.15, depth * 0.55)
    for right in (-half + 0.3, half - 0.3):
        canvas.rectangle(view.project(x + right - 0.15, 0.5, z), view.project(x + right + 0.15, 0, z), tire, CAR)
    paint_box(canvas, view, (x - half, 0.25, z), (x + half, 0.9, z + depth), (0.03, 0.03), paint, CAR)
    wheels: list[tuple[float, float, float, float]] = []  # x and z of the center, radius in x and in z
    if across:
        wheels = [(x + right, z, 0.33, 0) for right in (-half + 0.8, half - 0.8)]
    else:
        near_side = x - half if x > 0 else x + half
        if abs(x) > half:
            wheels = [(near_side, z + ahead, 0, 0.33) for ahead in (0.8, depth - 0.8)]
        lamp = pick_color(rng, [(200, 40, 40), (235, 235, 215)], 10)
        for right in (-half + 0.2, half - 0.2):
            outline = [view.project(x + right + 0.16 * a, 0.7 + 0.1 * b, z) for a, b in CIRCLE[::2]]
            canvas.polygon(outline, lamp, CAR)
    for wheel_x, wheel_z, radius_x, radius_z in wheels:
        rim = [view.project(wheel_x + radius_x * a, 0.33 + 0.33 * b, wheel_z + radius_z * a) for a, b in CIRCLE[::2]]
        canvas.polygon(rim, tire, CAR)
    margin = length * 0.14
    side, end = (margin, 0.08) if across else (0.08, margin)
    low, high = (x - half + side, 0.9, z + end), (x + half - side, roof, z + depth - end)
    paint_box(canvas, view, low, high, (side * 0.8, end * 0.8), paint, CAR, glass)


def paint_person(canvas: Canvas, view: View, rng: np.random.Generator, x: float, z: float) -> None:
    """Paint a standing or walking person: legs, body, arms, hair and face."""
    coat, legs, skin, hair = (view.add_haze(pick_color(rng, colors), z) for colors in (CLOTHES, CLOTHES, SKIN, HAIR))
    size, stride, swing = rng.uniform(0.95, 1.1), rng.uniform(-0.25, 0.25), rng.uniform(0, 0.2)
    paint_shadow(canvas, view, x, z, 0.4, 0.3)

    def limb(start: Point, end: Point, thickness: float, color: np.ndarray) -> None:
        first, last = (view.project(x + right * size, up * size, z) for right, up in (start, end))
        canvas.capsule(first, last, thickness * size * view.focal / z, color, PERSON)

    limb((-0.1, 0.9), (-0.1 - stride, 0.1), 0.14, legs * 0.85)
    limb((0.1, 0.9), (0.1 + stride, 0.1), 0.14, legs)
    limb((0, 1.3), (0, 0.95), 0.28, coat)
    limb((-0.24, 1.38), (-0.3 - swing, 0.85), 0.11, coat * 0.85)
    limb((0.24, 1.38), (0.3 + swing, 0.85), 0.11, coat * 0.85)
    limb((0, 1.7), (0, 1.7), 0.18, hair)
    limb((0, 1.66), (0, 1.62), 0.15, skin)


def paint_pole(canvas: Canvas, view: View, rng: np.random.Generator, x: float, z: float, head: str) -> None:
    """Paint a pole, 3 to 6 pixels wide, with a `sign`, a traffic `light`, a `lamp` over the road or nothing (``)."""
    meter, metal = view.focal / z, view.add_haze(pick_color(rng, METAL), z)
    half = min(max(rng.uniform(0.12, 0.18) * meter, 1.7), 3)
    # All heights are drawn, whichever is used, so that the random numbers do not depend on the head.
    height = {"sign": rng.uniform(2.9, 3.5), "light": rng.uniform(3, 3.6)}.get(head, rng.uniform(5, 7.5))
    (center, foot), (_, top) = view.project(x, 0, z), view.project(x, height, z)
    canvas.rectangle((center - half, top), (center + half, foot), metal, POLE)
    if head == "lamp":
        end = center + (-1 if x > 0 else 1) * rng.uniform(1.2, 2) * meter
        canvas.capsule((center, top), (end, top - 2), 1.1, metal, POLE)
    elif head == "sign":
        _paint_sign(canvas, rng, (center, top), max(rng.uniform(0.7, 0.9) * meter, 10))
    elif head == "light":
        _paint_traffic_light(canvas, rng, (center, top), max(0.38 * meter, 6))


def _paint_sign(canvas: Canvas, rng: np.random.Generator, center: Point, radius: float) -> None:
    """Paint a plate of any usual shape, with a rim and a mark."""
    shape, (x, y) = SIGNS[int(rng.integers(len(SIGNS)))], center
    for size in (radius, 0.68 * radius):  # the rim and the area inside
        corners = [(x + right * size, y - up * size) for right, up in shape]
        canvas.polygon(corners, pick_color(rng, SIGN_COLORS, 15), SIGN)
    mark = pick_color(rng, [(30, 30, 30), (230, 230, 225), (190, 40, 45)])
    canvas.capsule((x - 0.25 * radius, y), (x + 0.25 * radius, y), 0.13 * radius, mark, SIGN)


def _paint_traffic_light(canvas: Canvas, rng: np.random.Generator, center: Point, half: float) -> None:
    """Paint three lamps in a dark case of 2 x half by 5 x half pixels; one or two of them are lit."""
    case, (x, y) = pick_color(rng, [(35, 38, 36), (60, 62, 55), (25, 25, 28)], 6), center
    canvas.rectangle((x - half, y - 2.5 * half), (x + half, y + 2.5 * half), case, LIGHT)
    lit = [(0,), (1,), (2,), (0, 1)][int(rng.integers(4))]
    for position, lamp in enumerate(LAMPS):
        spot = (x, y + (position - 1) * 1.5 * half)
        color = pick_color(rng, [lamp], 5) if position in lit else case * 0.4 + 15
        canvas.capsule(spot, spot, 0.62 * half, color, LIGHT)


def paint_bin(canvas: Canvas, view: View, rng: np.random.Generator, x: float, z: float, label: int) -> None:
    """Paint a bin (label STATIC) or a cart on wheels (label DYNAMIC)."""
    half, height, meter = rng.uniform(0.3, 0.5), rng.uniform(0.8, 1.3), view.focal / z
    color = pick_color(rng, [(70, 90, 70), (110, 80, 50), (90, 95, 100)])
    paint_shadow(canvas, view, x, z + half, half * 1.3, half)
    paint_box(canvas, view, (x - half, 0.2, z), (x + half, height, z + 2 * half), (0.05, 0.05), color, label)
    if label == DYNAMIC:
        for wheel_x in (x - half, x + half):
            wheel = view.project(wheel_x, 0.2, z)
            canvas.capsule(wheel, wheel, 0.2 * meter, color * 0.4, label)
        handle = view.project(x + half, height, z), view.project(x + half * 1.8, height + 0.25, z)
        canvas.capsule(*handle, 0.08 * meter, color * 0.6, label)
