"""Drawn street scenes with labels: a pinhole camera in a street, and its background from the sky to the houses.

Colors are picked from lists that overlap between classes, and light, tint and haze change from image to image. So
color alone does not give the class of a pixel; position, texture and surroundings do.

Axes: x to the right and z ahead, in meters from the camera; up, in meters above the ground.
"""

from typing import NamedTuple

import numpy as np

from zoo.data.demo.common.drawing import (
    Canvas,
    Number,
    Point,
    coverage,
    pick_color,
    smooth_noise,
    stripe,
    stripes,
)

HEIGHT, WIDTH = 128, 256  # pixels
EGO, BORDER, STATIC, DYNAMIC = 1, 2, 4, 5  # ids of Cityscapes, as all labels here; these four are ignored
ROAD, SIDEWALK, BUILDING, POLE, LIGHT, SIGN, VEGETATION, SKY, PERSON, CAR = 7, 8, 11, 17, 19, 20, 21, 23, 24, 26
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
        """Return the pixel position of a point."""
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
