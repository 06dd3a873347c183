"""Drawn faces: a person has fixed measures, a view has a pose, a light and an expression.

The head is an ellipsoid, narrower towards the chin. Each pixel on it knows its place on the surface, so features turn
with the head. As everywhere in the demo sets, the arithmetic is exact.

Axes: x to the right and y down, 0 at the center of the head, 1 at its edge; u and v likewise, but fixed to the head.
"""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from zoo.data.demo.common import Number, coverage, pick_color, smooth_noise

HAIR = [(32, 26, 24), (62, 42, 30), (105, 70, 42), (165, 125, 75), (205, 175, 120), (130, 60, 35), (150, 150, 150)]
IRIS = [(60, 40, 25), (95, 65, 35), (70, 95, 60), (70, 110, 150), (110, 120, 125)]
FAIR, DARK = np.reshape((238, 200, 176), (3, 1)), np.reshape((98, 64, 48), (3, 1))  # range of the skin colors


# Range of each measure of a person. The unit of lengths is half the height of a head. Slopes are positive where
# features rise towards the temples.
MEASURES = {
    "width": (0.68, 0.9),  # half width of the head
    "jaw": (0.02, 0.42),  # how much narrower the chin is
    "chin": (0.86, 1.1),  # length of the lower half
    "volume": (0.02, 0.26),  # of the hair, beyond the head
    "length": (-0.5, 1.4),  # where the hair beside the face ends
    "hairline": (0.22, 0.62),  # its height over the brow, ...
    "peak": (-0.4, 0.5),  # ... how much lower it is at the temples, ...
    "parting": (-0.45, 0.45),  # ... and where it is highest
    "eyes": (0.3, 0.43),  # distance from the middle ...
    "eye_line": (-0.16, 0.04),  # ... and height
    "eye": (0.12, 0.19),  # half width
    "lid": (0.045, 0.1),  # opening
    "slant": (-0.28, 0.28),
    "brow_gap": (0.13, 0.24),
    "brow": (0.14, 0.24),  # half width
    "brow_thickness": (0.025, 0.08),
    "brow_slope": (-0.35, 0.35),
    "brow_bend": (-0.02, 0.1),
    "nose": (0.26, 0.48),  # length
    "nostrils": (0.08, 0.19),  # half width
    "bridge": (0.05, 0.4),  # strength of its shadow
    "mouth": (0.18, 0.36),  # half width
    "mouth_line": (0.5, 0.66),  # height
    "upper_lip": (0.03, 0.075),
    "lower_lip": (0.035, 0.1),
    "red": (0.1, 0.6),
    "ears": (0.1, 0.26),
    "cheeks": (0, 0.35),
}


class Person(SimpleNamespace):
    """Fixed measures of a person, equal in all images.

    Attributes: those of MEASURES; the colors skin, hair and iris, each (3, 1); beard, 0 for none; and moles, tuples of
    u, v and radius.
    """


class View(NamedTuple):
    """Pose, light and expression of one image. Angles are given by their sines."""

    roll: float
    yaw: float  # to the right
    pitch: float  # downwards
    zoom: float
    shift: tuple[float, float]  # of the head in the image
    light: tuple[float, float, float]  # direction it comes from: right, below, in front
    ambient: float
    smile: float
    mouth_opening: float
    eye_opening: float
    frown: float
    gaze: float


def random_person(rng: np.random.Generator) -> Person:
    """Draw a person; all measures are independent."""

    def uniform(low: float, high: float) -> float:
        return float(rng.uniform(low, high))

    return Person(
        skin=FAIR + uniform(0, 1) * (DARK - FAIR) + rng.uniform(-8, 8, (3, 1)),
        hair=pick_color(rng, HAIR)[:, 0],
        iris=pick_color(rng, IRIS)[:, 0],
        **{name: uniform(*limits) for name, limits in MEASURES.items()},
        beard=max(uniform(-1, 0.75), 0.0),
        moles=tuple((uniform(-0.6, 0.6), uniform(-0.35, 0.8), uniform(0.025, 0.06)) for _ in range(rng.integers(0, 4))),
    )


def random_view(rng: np.random.Generator, variation: float = 1.0) -> View:
    """Draw a pose, a light and an expression; with variation 0 it is always the front view in the same light."""

    def symmetric(limit: float) -> float:
        return float(rng.uniform(-limit, limit)) * variation

    return View(
        roll=symmetric(0.16),
        yaw=symmetric(0.42),
        pitch=symmetric(0.2),
        zoom=1 + symmetric(0.07),
        shift=(symmetric(0.09), symmetric(0.09)),
        light=(symmetric(1), symmetric(0.7) - 0.3, 0.8),
        ambient=1 - variation * float(rng.uniform(0.3, 0.7)),
        smile=symmetric(0.12),
        mouth_opening=max(symmetric(0.14), 0.0),
        eye_opening=1 + symmetric(0.35),
        frown=symmetric(0.05),
        gaze=symmetric(0.05),
    )


LEFT_RIGHT = np.array([[-1.0], [1.0]])  # signs of a pair of features, which are painted together


class Surface(NamedTuple):
    """The part of the head that each pixel shows, one array per coordinate."""

    x: np.ndarray  # upright in the image: 1 at the edge of the head
    y: np.ndarray
    z: np.ndarray  # towards the camera, 0 beside the head
    u: np.ndarray
    v: np.ndarray
    scale: float  # pixels per unit of length

    def protruding(self, height: float, view: View) -> "Surface":
        """Return the surface for features that protrude from the head: they move more when it turns."""
        u = self.u - height * view.yaw / _cosine(view.yaw)
        return self._replace(u=u, v=self.v - height * view.pitch / _cosine(view.pitch))

    def masked(self, mask: np.ndarray) -> "Surface":
        return Surface(self.x[mask], self.y[mask], self.z[mask], self.u[mask], self.v[mask], self.scale)


def render(person: Person, view: View, rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw one image. Background, clothes, tint and pixel noise come from rng alone.

    Returns:
        uint8 RGB (size, size, 3).
    """
    surface = head_surface(person, view, size)
    image = _background(person, rng, surface, size)
    strands = 1 + 0.2 * smooth_noise(rng, size, size, size / 16).ravel() + rng.uniform(-0.12, 0.12, size * size)
    _paint_ears(image, person, view, surface)
    _paint_back_hair(image, person, surface, strands)
    visible = surface.x * surface.x + surface.y * surface.y < 1.2
    surface = surface.masked(visible)
    face = np.repeat(person.skin, surface.x.size, 1)
    for paint_feature in (_paint_skin, _paint_eyes, _paint_nose, _paint_mouth):
        paint_feature(face, person, view, surface)
    _paint_front_hair(face, person, surface, strands[visible])
    distance = np.sqrt(surface.x * surface.x + surface.y * surface.y)
    head = coverage((1 - distance) * person.width * surface.scale)
    image[:, visible] += head * (face * shading(view, surface) - image[:, visible])
    tint = rng.uniform(0.8, 1.12) * rng.uniform(0.92, 1.08, (3, 1))
    pixels = np.clip(image * tint + rng.normal(0, rng.uniform(1.5, 5), image.shape), 0, 255)
    return np.ascontiguousarray(pixels.astype(np.uint8).T).reshape(size, size, 3)


def head_surface(person: Person, view: View, size: int) -> Surface:
    """Return the place on the head that each pixel of a (size, size) image shows; arrays are (size * size,)."""
    scale = 0.44 * size * view.zoom
    down, right = (axis.ravel() + 0.5 for axis in np.mgrid[:size, :size])
    right, down = ((axis - size / 2) / scale - shift for axis, shift in zip((right, down), view.shift))
    across = _cosine(view.roll) * right + view.roll * down
    y = _cosine(view.roll) * down - view.roll * right
    low = np.maximum(y, 0)
    y = np.where(y > 0, y / person.chin, y)
    x = across / (person.width * (1 - person.jaw * np.minimum(low, 1.2) * low))
    z = np.sqrt(np.maximum(1 - x * x - y * y, 0))
    depth = view.yaw * x + _cosine(view.yaw) * z
    return Surface(x, y, z, _cosine(view.yaw) * x - view.yaw * z, _cosine(view.pitch) * y - view.pitch * depth, scale)


def shading(view: View, s: Surface) -> np.ndarray:
    right, below, front = view.light
    towards = (right * s.x + below * s.y + front * s.z) / np.sqrt(right * right + below * below + front * front)
    return view.ambient + (1 - view.ambient) * 1.5 * np.maximum(towards, 0)


def _background(person: Person, rng: np.random.Generator, s: Surface, size: int) -> np.ndarray:
    """Return a background of two colors with neck and shoulders in front of it: (3, size * size)."""
    first, second, clothes = rng.uniform(30, 225, (3, 3, 1))
    image = first + (second - first) * coverage(smooth_noise(rng, size, size, size / rng.uniform(1, 5)).ravel())
    folds = 1 + 0.1 * smooth_noise(rng, size, size, 3).ravel()
    neck = coverage((0.42 - np.abs(s.x * person.width)) * s.scale) * coverage(s.y * s.scale)
    _blend(image, neck, person.skin * 0.72)
    _blend(image, coverage((s.y - 1.05 - 0.25 * s.x * s.x) * s.scale), clothes * folds)
    return image


def _paint_back_hair(image: np.ndarray, person: Person, s: Surface, strands: np.ndarray) -> None:
    """Paint hair around the head, and beside it down to where it ends."""
    x, y = s.x / (1 + person.volume / person.width), np.minimum(s.y, 0) / (1 + person.volume)
    cover = coverage((1 - np.sqrt(x * x + y * y)) * s.scale) * coverage((person.length - s.y) * s.scale)
    _blend(image, cover, person.hair * 0.75 * strands)


def _paint_ears(image: np.ndarray, person: Person, view: View, s: Surface) -> None:
    """Paint the ears a little behind the center of the head, so that it hides the one on the far side."""
    centers = LEFT_RIGHT * person.width * _cosine(view.yaw) - 0.15 * view.yaw
    ears = _ellipse(s._replace(u=s.x * person.width, v=s.y), centers, 0.05, 0.5 * person.ears, person.ears)
    _blend(image, ears, person.skin * 0.88)


def _paint_skin(face: np.ndarray, person: Person, view: View, s: Surface) -> None:
    right, down = (np.abs(s.u) - 0.45) / 0.3, (s.v - 0.3) / 0.25
    soft = np.maximum(1 - right * right - down * down, 0)
    _blend(face, person.cheeks * soft, person.skin * np.reshape((1.05, 0.72, 0.7), (3, 1)))
    beard = coverage((s.v - 0.34 - 0.5 * np.maximum(0.5 - np.abs(s.u), 0)) * 6)
    _blend(face, person.beard * beard, person.hair * 0.9)
    for u, v, radius in person.moles:
        _blend(face, 0.75 * _ellipse(s, u, v, radius, radius), person.skin * 0.35)


def _paint_eyes(face: np.ndarray, person: Person, view: View, s: Surface) -> None:
    u, v = LEFT_RIGHT * person.eyes, person.eye_line
    lid, slant = person.lid * view.eye_opening, LEFT_RIGHT * person.slant
    _blend(face, 0.35 * _lens(s, u, v - 0.03, person.eye * 1.15, lid * 1.9, slant), person.skin * 0.5)
    opening = _lens(s, u, v, person.eye, lid, slant)
    _blend(face, opening, 232.0)
    for radius, color in ((0.085, person.iris), (0.035, 15.0)):
        _blend(face, np.minimum(opening, _ellipse(s, u + view.gaze, v, radius, radius)), color)
    upper_lid = _lens(s, u, v - 0.6 * lid, person.eye * 1.05, 0.028, slant, 0.5 * lid)
    _blend(face, 0.8 * upper_lid, person.skin * 0.25)
    slope = LEFT_RIGHT * (person.brow_slope + 3 * view.frown)
    height = v - person.brow_gap + view.frown
    brows = _lens(s, u, height, person.brow, person.brow_thickness, slope, person.brow_bend)
    _blend(face, 0.9 * brows, person.hair * 0.7)


def _paint_nose(face: np.ndarray, person: Person, view: View, s: Surface) -> None:
    """Paint shadows beside the nose, darker on the side away from the light, nostrils and a bright tip."""
    surface, tip, half = s.protruding(0.16, view), person.eye_line + person.nose, person.nostrils
    shadow = person.bridge * np.where(surface.u * view.light[0] > 0, 0.5, 1.3)
    bridge = _ellipse(surface, LEFT_RIGHT * 0.55 * half, tip - 0.5 * person.nose, 0.05, 0.5 * person.nose)
    _blend(face, shadow * bridge, person.skin * 0.6)
    _blend(face, 0.5 * _ellipse(surface, LEFT_RIGHT * 0.75 * half, tip - 0.03, 0.5 * half, 0.07), person.skin * 0.72)
    _blend(face, 0.85 * _ellipse(surface, LEFT_RIGHT * 0.6 * half, tip + 0.02, 0.4 * half, 0.028), person.skin * 0.25)
    _blend(face, 0.4 * _ellipse(surface, 0, tip - 0.08, 0.06, 0.08), person.skin * 1.25)


def _paint_mouth(face: np.ndarray, person: Person, view: View, s: Surface) -> None:
    surface, half = s.protruding(0.05, view), person.mouth * (1 + view.smile)
    lips = person.skin * np.reshape((0.9, 0.62, 0.62), (3, 1)) + person.red * np.reshape((40, -25, -15), (3, 1))
    line, gap = person.mouth_line, view.mouth_opening / 2
    _blend(face, _lens(surface, 0, line, half, gap + 0.02, 0, -view.smile), 40.0)
    upper = line - gap - person.upper_lip / 2
    _blend(face, _lens(surface, 0, upper, half, person.upper_lip, 0, -view.smile), lips * 0.92)
    lower = line + gap + person.lower_lip / 2
    _blend(face, _lens(surface, 0, lower, half * 0.92, person.lower_lip, 0, -view.smile), lips)
    closed = 1 - coverage(view.mouth_opening * 20 - 0.5)
    _blend(face, closed * _lens(surface, 0, line, half, 0.025, 0, -view.smile), lips * 0.45)


def _paint_front_hair(face: np.ndarray, person: Person, s: Surface, strands: np.ndarray) -> None:
    """Paint hair above the hairline, and at the temples down to where the hair ends."""
    line = person.eye_line - person.brow_gap - person.hairline + person.peak * (s.u - person.parting) ** 2
    temple = np.minimum((np.abs(s.u) - 0.86) * 2, person.length - s.v)
    _blend(face, coverage(np.maximum(line - s.v, temple) * s.scale), person.hair * strands)


def _ellipse(s: Surface, u: Number, v: float, half_width: float, half_height: float) -> np.ndarray:
    """Return the fraction of each pixel inside an ellipse around (u, v), or inside one of several with u (n, 1)."""
    right, down = (s.u - u) / half_width, (s.v - v) / half_height
    distance = np.sqrt(right * right + down * down).reshape(-1, s.u.size).min(0)
    return coverage((1 - distance) * min(half_width, half_height) * s.scale)


def _lens(
    s: Surface, u: Number, v: float, half_width: float, half_height: float, slope: Number = 0, bend: float = 0
) -> np.ndarray:
    """Return the fraction of each pixel inside a lens with pointed ends, or inside one of several with u (n, 1).

    Args:
        slope: Of the axis, down to the right.
        bend: How much lower the ends are.
    """
    across = s.u - u
    along = across * across / (half_width * half_width)
    inside = half_height * (1 - along) - np.abs(s.v - v - slope * across - bend * along)
    return coverage(inside.reshape(-1, s.u.size).max(0) * s.scale)


def _blend(image: np.ndarray, cover: np.ndarray, color: Number) -> None:
    """Blend a color, (3, 1) or (3, pixels), into (3, pixels) by its coverage in [0, 1]."""
    image += cover * (color - image)


def _cosine(sine: float) -> float:
    return (1 - sine * sine) ** 0.5
