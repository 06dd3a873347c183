"""Faces in photos: found by a detector, turned and scaled to the five points that ArcFace's models expect."""

from typing import NamedTuple

import numpy as np

from zoo.data.errors import BadSample, parsing
from zoo.data.extras import cv2
from zoo.data.formats import images

SIZE = 112  # of an aligned face, in pixels
# Where eyes, tip of the nose and corners of the mouth lie, from left to right: facts of insightface's aligned sets.
TEMPLATE = np.array(
    [(38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041)]
)
SIDES = (640, 1280, 320)  # of the longer side of a photo, tried in turn: YuNet sees faces of 10 to 300 pixels
MIN_SCORE, MAX_OVERLAP, MAX_FACES = 0.7, 0.3, 5000


class Face(NamedTuple):
    """The largest face of a photo: its points (5, 2), width and score, and how many faces there are in all."""

    points: np.ndarray
    width: float
    score: float
    total: int


class Detector:
    """OpenCV's YuNet.

    Args:
        path: of its weights, an ONNX file.
    """

    def __init__(self, path: str):
        with parsing(
            f"{path}: is no YuNet that OpenCV can run", "name face_detection_yunet_2023mar.onnx of OpenCV's zoo"
        ):
            content = np.frombuffer(images.read_content(path), np.uint8)
            self.net = cv2.FaceDetectorYN.create(
                "onnx", content, np.zeros(0, np.uint8), (SIDES[0],) * 2, MIN_SCORE, MAX_OVERLAP, MAX_FACES
            )
            self.net.detect(np.zeros((SIDES[0], SIDES[0], 3), np.uint8))

    def largest(self, photo: np.ndarray) -> Face:
        """Find the largest face in a photo, uint8 RGB (H, W, 3). Raises BadSample if there is none."""
        bgr = photo[:, :, ::-1]
        for side in SIDES:
            factor = side / max(photo.shape[:2])
            resized = _resize(bgr, factor)
            self.net.setInputSize(resized.shape[1::-1])
            found = self.net.detect(resized)[1]
            if found is not None:
                best = found[np.argmax(found[:, 2] * found[:, 3])]
                scale = resized.shape[1] / photo.shape[1], resized.shape[0] / photo.shape[0]
                return Face(best[4:14].reshape(5, 2) / scale, best[2] / scale[0], best[14], len(found))
        raise BadSample("no face found")


def similarity(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the rotation, scale and shift (2, 3) that takes points to others with the least squared distance.

    Args:
        source, target: points (n, 2).

    Raises:
        BadSample: the points of the source are all one.
    """
    (center, goal), moved = (source.mean(axis=0), target.mean(axis=0)), source - source.mean(axis=0)
    variance = (moved**2).sum()
    if not variance > 0:
        raise BadSample("the points of the face are all one")
    # As complex numbers, a rotation with a scale is a factor, and least squares gives it at once.
    x, y = moved.T
    (goal_x, goal_y) = (target - goal).T
    real, imaginary = (x * goal_x + y * goal_y).sum() / variance, (x * goal_y - y * goal_x).sum() / variance
    linear = np.array([(real, -imaginary), (imaginary, real)])
    return np.column_stack([linear, goal - linear @ center])


def align(photo: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Cut out a face: uint8 RGB (SIZE, SIZE, 3), black beyond the photo.

    Args:
        photo: uint8 RGB (H, W, 3).
        points: of the face, as in TEMPLATE, (5, 2).
    """
    scale = np.hypot(*similarity(points, TEMPLATE)[:, 0])
    if scale < 0.5:  # bilinear sampling would skip pixels
        shrunk = _resize(photo, 2 * scale)
        points = (points + 0.5) * (np.array(shrunk.shape[1::-1]) / photo.shape[1::-1]) - 0.5
        photo = shrunk
    return cv2.warpAffine(photo, similarity(points, TEMPLATE), (SIZE, SIZE))


def _resize(photo: np.ndarray, factor: float) -> np.ndarray:
    width, height = (max(1, round(side * factor)) for side in photo.shape[1::-1])
    return cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
