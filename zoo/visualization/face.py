"""Verification pairs: those that are most and least alike, of the same person and of different persons."""

from collections.abc import Mapping

import numpy as np

from zoo.tasks.face import THRESHOLDS
from zoo.visualization import canvas
from zoo.visualization.evaluation import Evaluation

PAIRS = 4  # of a kind
SIDE = 112  # of an image, in pixels
KINDS = (  # title, whether the person is the same, whether the most similar pairs are drawn
    ("same person, most alike", True, True),
    ("same person, least alike", True, False),
    ("different persons, least alike", False, False),
    ("different persons, most alike", False, True),
)


def draw(evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw `pairs`, a row for each of KINDS, from the distances of all pairs of all ranks."""
    state = evaluation.state
    distance, same = state["distance"], state["same"] > 0
    readable = (state["seen"] > 0) & np.isfinite(distance)
    accepted = distance < _thresholds(evaluation, distance, same, readable)
    rows = []
    for title, is_same, most_alike in KINDS:
        candidates = np.flatnonzero(readable & (same == is_same))
        order = np.argsort(distance[candidates] if most_alike else -distance[candidates], kind="stable")
        tiles = [
            _tile(evaluation, int(index), distance[index], bool(accepted[index] == is_same))
            for index in candidates[order[:PAIRS]]
        ]
        if tiles:
            rows += [canvas.label(title), canvas.row(tiles)]
    return {"pairs": canvas.column(rows)} if rows else {}


def _thresholds(evaluation: Evaluation, distance: np.ndarray, same: np.ndarray, readable: np.ndarray) -> np.ndarray:
    """Return for each pair the distance that divides the pairs of its set best, (P,)."""
    thresholds = np.zeros(len(distance))
    for _, first, count in evaluation.dataset.sets:  # type: ignore[attr-defined]
        rows = slice(first, first + count)
        known = readable[rows]
        right = ((distance[rows][known] < THRESHOLDS[:, None]) == same[rows][known]).sum(1)
        thresholds[rows] = THRESHOLDS[right.argmax()]
    return thresholds


def _tile(evaluation: Evaluation, index: int, distance: float, is_right: bool) -> np.ndarray:
    """Draw a pair with the cosine of its embeddings; the color tells whether the best threshold gets it right."""
    sample = evaluation.sample(index)
    images = np.zeros((2, SIDE, SIDE, 3), np.uint8) if sample is None else sample[evaluation.dataset.fields[0].name]
    size = canvas.fit(images.shape[1:3], SIDE)
    text, color = ("right", canvas.RIGHT) if is_right else ("wrong", canvas.WRONG)
    return canvas.caption(
        canvas.row([canvas.resize(image, size) for image in images]), f"cosine {1 - distance / 2:.2f}, {text}", color
    )
