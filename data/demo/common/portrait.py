"""Drawn faces: a person is a list of measures, a picture shows the person in some pose, light and mood.

The head is an ellipsoid, narrowed towards the chin; each pixel that sees it knows its place on it, so features turn
with the head. Only numpy's exact arithmetic in 64 bits (no exponentials, no matrix products), so that no processor
rounds a pixel otherwise.

Axes: x to the right and y down, 0 in the middle of the head, 1 at its edge; u and v likewise, but fixed to the head.
"""

from typing import NamedTuple, Union

import numpy as np

from data.demo.common.street_scene import noise, pick, share

HAIR = [(32, 26, 24), (62, 42, 30), (105, 70, 42), (165, 125, 75), (205, 175, 120), (130, 60, 35), (150, 150, 150)]
IRIS = [(60, 40, 25), (95, 65, 35), (70, 95, 60), (70, 110, 150), (110, 120, 125)]
FAIR, DARK = np.reshape((238, 200, 176), (3, 1)), np.reshape((98, 64, 48), (3, 1))  # ends of the skin colours

BOTH = np.array([[-1.0], [1.0]])  # left and right at once

Places = Union[float, np.ndarray]  # one, or several as (n, 1)


class Person(NamedTuple):
    """What stays. Lengths in half heads; slopes rise towards the temples; colours are (3, 1)."""

    skin: np.ndarray
    hair: np.ndarray
    iris: np.ndarray
    wide: float  # half width of the head
    jaw: float  # how much of it the chin lacks
    chin: float  # length of the lower half
    volume: float  # of the hair, beyond the head
    length: float  # where the hair beside the face ends
    hairline: float  # its height over the brow, ...
    peak: float  # ... how much lower it is at the temples, ...
    parting: float  # ... and where it is highest
    eyes: float  # distance from the middle ...
    eye_line: float  # ... and height
    eye: float  # half width
    lid: float  # how far it opens
    slant: float
    brow_gap: float
    brow: float  # half width
    brow_thick: float
    brow_slope: float
    brow_bend: float
    nose: float  # length
    nostrils: float  # half width
    bridge: float  # how sharp its shadow is
    mouth: float  # half width
    mouth_line: float  # height
    upper: float  # lips
    lower: float
    red: float
    ears: float
    cheeks: float
    beard: float  # 0: none
    moles: tuple[tuple[float, float, float], ...]  # u, v, radius


class View(NamedTuple):
    """What changes from picture to picture. Turns are given by their sines."""

    roll: float
    yaw: float  # to the right
    pitch: float  # downwards
    zoom: float
    shift: tuple[float, float]  # of the head in the picture
    light: tuple[float, float, float]  # direction it comes from: right, below, in front
    ambient: float
    smile: float
    gape: float  # how far the mouth is open
    wide_eyes: float
    frown: float
    gaze: float


class Surface(NamedTuple):
    """What pixels see of the head, an array each, and how many pixels half a head has."""

    x: np.ndarray  # on the picture, upright: 1 at the edge of the head
    y: np.ndarray
    z: np.ndarray  # towards the camera, 0 beside the head
    u: np.ndarray
    v: np.ndarray
    scale: float

    def turned(self, forward: float, view: View) -> "Surface":
        """For what stands out of the head so far: it moves more than the head below it."""
        u = self.u - forward * view.yaw / _cosine(view.yaw)
        return self._replace(u=u, v=self.v - forward * view.pitch / _cosine(view.pitch))


def person(rng: np.random.Generator) -> Person:
    """Somebody. Every measure is drawn by itself."""

    def spread(low, high):
        return float(rng.uniform(low, high))

    skin = FAIR + spread(0, 1) * (DARK - FAIR) + rng.uniform(-8, 8, (3, 1))
    return Person(
        skin=skin,
        hair=pick(rng, HAIR)[:, 0],
        iris=pick(rng, IRIS)[:, 0],
        wide=spread(0.68, 0.9),
        jaw=spread(0.02, 0.42),
        chin=spread(0.86, 1.1),
        volume=spread(0.02, 0.26),
        length=spread(-0.5, 1.4),
        hairline=spread(0.22, 0.62),
        peak=spread(-0.4, 0.5),
        parting=spread(-0.45, 0.45),
        eyes=spread(0.3, 0.43),
        eye_line=spread(-0.16, 0.04),
        eye=spread(0.12, 0.19),
        lid=spread(0.045, 0.1),
        slant=spread(-0.28, 0.28),
        brow_gap=spread(0.13, 0.24),
        brow=spread(0.14, 0.24),
        brow_thick=spread(0.025, 0.08),
        brow_slope=spread(-0.35, 0.35),
        brow_bend=spread(-0.02, 0.1),
        nose=spread(0.26, 0.48),
        nostrils=spread(0.08, 0.19),
        bridge=spread(0.05, 0.4),
        mouth=spread(0.18, 0.36),
        mouth_line=spread(0.5, 0.66),
        upper=spread(0.03, 0.075),
        lower=spread(0.035, 0.1),
        red=spread(0.1, 0.6),
        ears=spread(0.1, 0.26),
        cheeks=spread(0, 0.35),
        beard=max(spread(-1, 0.75), 0.0),
        moles=tuple((spread(-0.6, 0.6), spread(-0.35, 0.8), spread(0.025, 0.06)) for _ in range(rng.integers(0, 4))),
    )


def look(rng: np.random.Generator, variation: float = 1.0) -> View:
    """Some pose, light and mood. variation: 0 shows everybody from the front, in the same light."""

    def around(reach):
        return float(rng.uniform(-reach, reach)) * variation

    return View(
        roll=around(0.16),
        yaw=around(0.42),
        pitch=around(0.2),
        zoom=1 + around(0.07),
        shift=(around(0.09), around(0.09)),
        light=(around(1), around(0.7) - 0.3, 0.8),
        ambient=1 - variation * float(rng.uniform(0.3, 0.7)),
        smile=around(0.12),
        gape=max(around(0.14), 0.0),
        wide_eyes=1 + around(0.35),
        frown=around(0.05),
        gaze=around(0.05),
    )


def render(who: Person, view: View, rng: np.random.Generator, side: int) -> np.ndarray:
    """One picture: uint8 RGB (side, side, 3). What lies behind, clothes, tint and noise come from rng alone."""
    s = _surface(who, view, side)
    picture = _behind(who, rng, s, side)
    strands = 1 + 0.2 * noise(rng, side, side, side / 16).ravel() + rng.uniform(-0.12, 0.12, side * side)
    _ears(picture, who, view, s)
    _back_hair(picture, who, s, strands)
    seen = s.x * s.x + s.y * s.y < 1.2
    s = Surface(*(array[seen] for array in s[:-1]), s.scale)
    face = np.repeat(who.skin, s.x.size, 1)
    for paint_in in (_skin, _eyes, _nose, _mouth):
        paint_in(face, who, view, s)
    _front_hair(face, who, s, strands[seen])
    head = share((1 - np.sqrt(s.x * s.x + s.y * s.y)) * who.wide * s.scale)
    picture[:, seen] += head * (face * _light(view, s) - picture[:, seen])
    tint = rng.uniform(0.8, 1.12) * rng.uniform(0.92, 1.08, (3, 1))
    pixels = np.clip(picture * tint + rng.normal(0, rng.uniform(1.5, 5), picture.shape), 0, 255)
    return np.ascontiguousarray(pixels.astype(np.uint8).T).reshape(side, side, 3)


def _surface(who: Person, view: View, side: int) -> Surface:
    scale = 0.44 * side * view.zoom
    down, right = (place.ravel() + 0.5 for place in np.mgrid[:side, :side])
    right, down = ((place - side / 2) / scale - moved for place, moved in zip((right, down), view.shift))
    across = _cosine(view.roll) * right + view.roll * down
    y = _cosine(view.roll) * down - view.roll * right
    low = np.maximum(y, 0)
    y = np.where(y > 0, y / who.chin, y)
    x = across / (who.wide * (1 - who.jaw * np.minimum(low, 1.2) * low))
    z = np.sqrt(np.maximum(1 - x * x - y * y, 0))
    depth = view.yaw * x + _cosine(view.yaw) * z
    return Surface(x, y, z, _cosine(view.yaw) * x - view.yaw * z, _cosine(view.pitch) * y - view.pitch * depth, scale)


def _behind(who: Person, rng: np.random.Generator, s: Surface, side: int) -> np.ndarray:
    """A background of two colours, and neck and shoulders in front of it: (3, side * side)."""
    one, other, clothes = rng.uniform(30, 225, (3, 3, 1))
    picture = one + (other - one) * share(noise(rng, side, side, side / rng.uniform(1, 5)).ravel())
    folds = 1 + 0.1 * noise(rng, side, side, 3).ravel()
    _paint(picture, share((0.42 - np.abs(s.x * who.wide)) * s.scale) * share(s.y * s.scale), who.skin * 0.72)
    _paint(picture, share((s.y - 1.05 - 0.25 * s.x * s.x) * s.scale), clothes * folds)
    return picture


def _back_hair(picture: np.ndarray, who: Person, s: Surface, strands: np.ndarray) -> None:
    """Around the head, and beside it down to where it ends."""
    x, y = s.x / (1 + who.volume / who.wide), np.minimum(s.y, 0) / (1 + who.volume)
    cover = share((1 - np.sqrt(x * x + y * y)) * s.scale) * share((who.length - s.y) * s.scale)
    _paint(picture, cover, who.hair * 0.75 * strands)


def _ears(picture: np.ndarray, who: Person, view: View, s: Surface) -> None:
    """A little behind the middle of the head, so that it hides the one that it turns to."""
    middles = BOTH * who.wide * _cosine(view.yaw) - 0.15 * view.yaw
    ears = _ellipse(s._replace(u=s.x * who.wide, v=s.y), middles, 0.05, 0.5 * who.ears, who.ears)
    _paint(picture, ears, who.skin * 0.88)


def _skin(face: np.ndarray, who: Person, view: View, s: Surface) -> None:
    """Cheeks, beard and moles."""
    right, down = (np.abs(s.u) - 0.45) / 0.3, (s.v - 0.3) / 0.25
    soft = np.maximum(1 - right * right - down * down, 0)
    _paint(face, who.cheeks * soft, who.skin * np.reshape((1.05, 0.72, 0.7), (3, 1)))
    grown = share((s.v - 0.34 - 0.5 * np.maximum(0.5 - np.abs(s.u), 0)) * 6)
    _paint(face, who.beard * grown, who.hair * 0.9)
    for u, v, radius in who.moles:
        _paint(face, 0.75 * _ellipse(s, u, v, radius, radius), who.skin * 0.35)


def _eyes(face: np.ndarray, who: Person, view: View, s: Surface) -> None:
    """Shade around them, the white, iris and pupil, the upper lid and the brow."""
    u, v, lid, slant = BOTH * who.eyes, who.eye_line, who.lid * view.wide_eyes, BOTH * who.slant
    _paint(face, 0.35 * _lens(s, u, v - 0.03, who.eye * 1.15, lid * 1.9, slant), who.skin * 0.5)
    opening = _lens(s, u, v, who.eye, lid, slant)
    _paint(face, opening, 232.0)
    for radius, colour in ((0.085, who.iris), (0.035, 15.0)):
        _paint(face, np.minimum(opening, _ellipse(s, u + view.gaze, v, radius, radius)), colour)
    _paint(face, 0.8 * _lens(s, u, v - 0.6 * lid, who.eye * 1.05, 0.028, slant, 0.5 * lid), who.skin * 0.25)
    slope = BOTH * (who.brow_slope + 3 * view.frown)
    brows = _lens(s, u, v - who.brow_gap + view.frown, who.brow, who.brow_thick, slope, who.brow_bend)
    _paint(face, 0.9 * brows, who.hair * 0.7)


def _nose(face: np.ndarray, who: Person, view: View, s: Surface) -> None:
    """Shadows beside it, the darker one away from the light, nostrils, and a bright tip."""
    out, end, half = s.turned(0.16, view), who.eye_line + who.nose, who.nostrils
    shadow = who.bridge * np.where(out.u * view.light[0] > 0, 0.5, 1.3)
    _paint(face, shadow * _ellipse(out, BOTH * 0.55 * half, end - 0.5 * who.nose, 0.05, 0.5 * who.nose), who.skin * 0.6)
    _paint(face, 0.5 * _ellipse(out, BOTH * 0.75 * half, end - 0.03, 0.5 * half, 0.07), who.skin * 0.72)
    _paint(face, 0.85 * _ellipse(out, BOTH * 0.6 * half, end + 0.02, 0.4 * half, 0.028), who.skin * 0.25)
    _paint(face, 0.4 * _ellipse(out, 0, end - 0.08, 0.06, 0.08), who.skin * 1.25)


def _mouth(face: np.ndarray, who: Person, view: View, s: Surface) -> None:
    out, half = s.turned(0.05, view), who.mouth * (1 + view.smile)
    lips = who.skin * np.reshape((0.9, 0.62, 0.62), (3, 1)) + who.red * np.reshape((40, -25, -15), (3, 1))
    top, bottom = who.mouth_line - view.gape / 2, who.mouth_line + view.gape / 2
    _paint(face, _lens(out, 0, who.mouth_line, half, view.gape / 2 + 0.02, 0, -view.smile), 40.0)
    _paint(face, _lens(out, 0, top - who.upper / 2, half, who.upper, 0, -view.smile), lips * 0.92)
    _paint(face, _lens(out, 0, bottom + who.lower / 2, half * 0.92, who.lower, 0, -view.smile), lips)
    _paint(
        face,
        (1 - share(view.gape * 20 - 0.5)) * _lens(out, 0, who.mouth_line, half, 0.025, 0, -view.smile),
        lips * 0.45,
    )


def _front_hair(face: np.ndarray, who: Person, s: Surface, strands: np.ndarray) -> None:
    """All over the hairline, and at the temples down to where the hair ends."""
    line = who.eye_line - who.brow_gap - who.hairline + who.peak * (s.u - who.parting) ** 2
    temple = np.minimum((np.abs(s.u) - 0.86) * 2, who.length - s.v)
    _paint(face, share(np.maximum(line - s.v, temple) * s.scale), who.hair * strands)


def _light(view: View, s: Surface) -> np.ndarray:
    right, below, front = view.light
    towards = (right * s.x + below * s.y + front * s.z) / np.sqrt(right * right + below * below + front * front)
    return view.ambient + (1 - view.ambient) * 1.5 * np.maximum(towards, 0)


def _ellipse(s: Surface, u: Places, v: float, wide: float, high: float) -> np.ndarray:
    """How much of each pixel lies in an ellipse of these half axes, or in one of several."""
    right, down = (s.u - u) / wide, (s.v - v) / high
    away = np.sqrt(right * right + down * down).reshape(-1, s.u.size).min(0)
    return share((1 - away) * min(wide, high) * s.scale)


def _lens(s: Surface, u: Places, v: float, wide: float, high: float, slope: Places = 0, bend: float = 0) -> np.ndarray:
    """The same of lenses with pointed ends. slope: of the axis, down to the right; bend: how much the ends hang."""
    across = s.u - u
    along = across * across / (wide * wide)
    inside = high * (1 - along) - np.abs(s.v - v - slope * across - bend * along)
    return share(inside.reshape(-1, s.u.size).max(0) * s.scale)


def _paint(picture: np.ndarray, cover: np.ndarray, colour) -> None:
    """Mix a colour, (3, 1) or (3, pixels), into (3, pixels) by its cover, in [0, 1]."""
    picture += cover * (colour - picture)


def _cosine(sine: float) -> float:
    return (1 - sine * sine) ** 0.5
