"""Objects on a drawn street: trees, cars, persons, poles with signs and lights, bins and carts."""

import numpy as np

from zoo.data.demo.common.drawing import Canvas, Point, pick_color
from zoo.data.demo.common.street_scene import (
    CAR,
    DYNAMIC,
    LEAVES,
    LIGHT,
    PERSON,
    POLE,
    SIGN,
    VEGETATION,
    View,
    paint_crown,
)

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
