"""Embeddings of faces, the similarity of two, and the images of an album that are most similar to each."""

import os
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from zoo.data import durable
from zoo.data.errors import BadSample
from zoo.data.formats import face_files, images
from zoo.data.importing.faces import Detector, align
from zoo.predict.results import DEFAULT_TOP, Request, Row, Sample, Source, TrainedModel
from zoo.predict.urls import local_path
from zoo.tasks import face

EMBEDDINGS_FILE = "embeddings.npz"


class Face(NamedTuple):
    """The embedding of a face.

    Attributes:
        embedding: float64 (d,), of length 1; the cosine of two faces is the product of their embeddings.
        length: mean length of the model's embeddings of the image and its mirror image.
    """

    embedding: np.ndarray
    length: float


def read_face(source: Source, settings: Any) -> np.ndarray:
    """Return a file or an image as the model's input, uint8 (size, size, 3). Raises BadSample."""
    # The synthetic data set reads no files and so has no key `resize`: a model trained on it takes every size.
    size, resize = settings.size, getattr(settings, "resize", True)
    if isinstance(source, str):
        with local_path(source) as path:
            return face_files.decode(path, size, resize)
    return face_files.fit(source, size, resize)


def read(settings: Any, _seed: int, source: Source, _index: int) -> Sample:
    return Sample({"image": read_face(source, settings)[None]})


@cache
def _detector(path: str) -> tuple[Detector, Lock]:
    return Detector(path), Lock()  # a detector holds the size of a photo: one thread at a time


def read_photo(detector: str, settings: Any, _seed: int, source: Source, _index: int) -> Sample:
    """Read the largest face of a photo, turned and scaled as zoo data align does. Raises BadSample.

    Args:
        detector: path of YuNet's weights.
    """
    if isinstance(source, str):
        with local_path(source) as path:
            encoded = images.read(path)
            source = encoded.upright(images.decode_stored(encoded))
    net, lock = _detector(detector)
    with lock:
        points = net.largest(source).points
    return Sample({"image": face_files.fit(align(source, points), settings.size, True)[None]})


def face_result(_model: TrainedModel, _source: Source, _sample: Sample, views: np.ndarray) -> Face:
    """Return the embedding that an evaluation compares: the mirror image's is added, then the sum normalized.

    Args:
        views: the model's embeddings of an image and perhaps of its mirror image, (1, V, d).

    Raises:
        BadSample: the embedding has no direction.
    """
    embeddings = views[0].astype(np.float64)
    summed = embeddings.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = summed / np.linalg.norm(summed)
    if not np.isfinite(unit).all():
        raise BadSample("its embedding is zero or not finite; the weights may be those of a run that diverged")
    return Face(unit, float(np.linalg.norm(embeddings, axis=1).mean()))


def describe(
    model: TrainedModel, source: str, sample: Sample, views: np.ndarray, request: Request, _output: str
) -> tuple[str, Row]:
    """Return the line and the row of a face, with the most similar ones of an album. Raises BadSample."""
    unit, norm = face_result(model, source, sample, views)
    line, row = f"embedding of {len(unit)} numbers, length {norm:.4g}", {"embedding": unit.tolist(), "length": norm}
    if request.album is not None:
        paths, units, persons, limit = request.album
        cosines = units @ unit if paths else units
        ranking = np.argsort(-cosines, kind="stable")[: request.top or DEFAULT_TOP]
        if persons and limit is not None:
            row["person"] = persons[ranking[0]] if cosines[ranking[0]] > limit else None
            line += f"; {row['person'] or 'nobody in the album'}"
        row["most_similar"] = [{"file": paths[index], "cosine": float(cosines[index])} for index in ranking]
        hits = ", ".join(f"{paths[index]} {cosines[index]:.4f}" for index in ranking)
        line += f"; most similar: {hits or 'nothing, as no image could be read'}"
    return line, row


def finish(model: TrainedModel, rows: Sequence[Row], out: str) -> list[str]:
    """Write the embeddings of all files to EMBEDDINGS_FILE; return lines on the similarity of two and the threshold."""
    rows = [row for row in rows if "embedding" in row]
    if not rows:
        return []
    units = np.array([row["embedding"] for row in rows])
    path = os.path.join(out, EMBEDDINGS_FILE)
    with open(path, "wb", opener=durable.fresh) as file:
        np.savez(file, files=[row["file"] for row in rows], embeddings=units.astype(np.float32))
    limits = [face.threshold_text(name, value) for name, value in model.thresholds.items()]
    limits = [f"threshold: {limit}" for limit in limits]
    if len(rows) != 2:
        return limits
    cosine, distance = float(units[0] @ units[1]), float(((units[0] - units[1]) ** 2).sum())
    return [f"similarity of the two: cosine {cosine:.4f}, squared distance {distance:.4f}", *limits]
