"""Parameters of drawn faces: a person has fixed measures, a view has a pose, a light and an expression."""

from typing import NamedTuple

import numpy as np

from zoo.data.demo.common.drawing import pick_color

HAIR = [(32, 26, 24), (62, 42, 30), (105, 70, 42), (165, 125, 75), (205, 175, 120), (130, 60, 35), (150, 150, 150)]
IRIS = [(60, 40, 25), (95, 65, 35), (70, 95, 60), (70, 110, 150), (110, 120, 125)]
FAIR, DARK = np.reshape((238, 200, 176), (3, 1)), np.reshape((98, 64, 48), (3, 1))  # range of the skin colors


class Person(NamedTuple):
    """Fixed measures of a person, equal in all images.

    The unit of lengths is half the height of a head. Slopes are positive where features rise towards the temples.
    Colors are (3, 1).
    """

    skin: np.ndarray
    hair: np.ndarray
    iris: np.ndarray
    width: float  # half width of the head
    jaw: float  # how much narrower the chin is
    chin: float  # length of the lower half
    volume: float  # of the hair, beyond the head
    length: float  # where the hair beside the face ends
    hairline: float  # its height over the brow, ...
    peak: float  # ... how much lower it is at the temples, ...
    parting: float  # ... and where it is highest
    eyes: float  # distance from the middle ...
    eye_line: float  # ... and height
    eye: float  # half width
    lid: float  # opening
    slant: float
    brow_gap: float
    brow: float  # half width
    brow_thickness: float
    brow_slope: float
    brow_bend: float
    nose: float  # length
    nostrils: float  # half width
    bridge: float  # strength of its shadow
    mouth: float  # half width
    mouth_line: float  # height
    upper_lip: float
    lower_lip: float
    red: float
    ears: float
    cheeks: float
    beard: float  # 0: none
    moles: tuple[tuple[float, float, float], ...]  # u, v, radius


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

    skin = FAIR + uniform(0, 1) * (DARK - FAIR) + rng.uniform(-8, 8, (3, 1))
    return Person(
        skin=skin,
        hair=pick_color(rng, HAIR)[:, 0],
        iris=pick_color(rng, IRIS)[:, 0],
        width=uniform(0.68, 0.9),
        jaw=uniform(0.02, 0.42),
        chin=uniform(0.86, 1.1),
        volume=uniform(0.02, 0.26),
        length=uniform(-0.5, 1.4),
        hairline=uniform(0.22, 0.62),
        peak=uniform(-0.4, 0.5),
        parting=uniform(-0.45, 0.45),
        eyes=uniform(0.3, 0.43),
        eye_line=uniform(-0.16, 0.04),
        eye=uniform(0.12, 0.19),
        lid=uniform(0.045, 0.1),
        slant=uniform(-0.28, 0.28),
        brow_gap=uniform(0.13, 0.24),
        brow=uniform(0.14, 0.24),
        brow_thickness=uniform(0.025, 0.08),
        brow_slope=uniform(-0.35, 0.35),
        brow_bend=uniform(-0.02, 0.1),
        nose=uniform(0.26, 0.48),
        nostrils=uniform(0.08, 0.19),
        bridge=uniform(0.05, 0.4),
        mouth=uniform(0.18, 0.36),
        mouth_line=uniform(0.5, 0.66),
        upper_lip=uniform(0.03, 0.075),
        lower_lip=uniform(0.035, 0.1),
        red=uniform(0.1, 0.6),
        ears=uniform(0.1, 0.26),
        cheeks=uniform(0, 0.35),
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
