"""Embeddings of faces, the similarity of two, and the images of a folder that are most similar to each."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import BadSample
from zoo.data.formats import face_files
from zoo.predict.results import DEFAULT_TOP, Failure, Prediction, Row, Source, TrainedModel
from zoo.trainer.protocol import Inference

EMBEDDINGS_FILE = "embeddings.npz"
BATCH_SIZE = 64  # images of a searched folder that are predicted at once
NO_DIRECTION = "its embedding is zero or not finite; the weights may be those of a run that diverged"


class Comparison(NamedTuple):
    """The result for all files together: metadata for predictions.json, lines for the screen, failures."""

    metadata: dict[str, Any]
    lines: Sequence[str]
    failures: Sequence[Failure]


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
        return face_files.decode(source, size, resize)
    return face_files.fit(source, size, resize)


def embed(trainer: Inference, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute embeddings as an evaluation compares them: the mirror image's is added, then the sum normalized.

    Args:
        trainer: of the face model.
        images: uint8 (N, size, size, 3).

    Returns:
        Unit vectors, float64 (N, d), NaN where an embedding is zero or not finite; and the mean norm of the model's
        embeddings of each image, (N,).
    """
    views = trainer.predict(trainer.to_device({"image": images})).astype(np.float64)
    summed = views.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        units = summed / np.linalg.norm(summed, axis=1, keepdims=True)
    return units, np.linalg.norm(views, axis=2).mean(1)


def face_result(model: TrainedModel, source: Source, _index: int) -> Face:
    """Compute the embedding of the face in a file or an image.

    Raises:
        BadSample: the file cannot be read, or its embedding has no direction.
    """
    (unit,), (norm,) = embed(model.trainer, np.stack([read_face(source, model.cfg.data)]))
    if not np.isfinite(unit).all():
        raise BadSample(NO_DIRECTION)
    return Face(unit, float(norm))


def embed_file(model: TrainedModel, path: str, index: int, _top: int | None, _output: str) -> Prediction:
    """Compute the embedding of the face in a file. Raises BadSample."""
    unit, norm = face_result(model, path, index)
    line = f"embedding of {len(unit)} numbers, length {norm:.4g}"
    return Prediction(line, {"embedding": unit.tolist(), "length": norm})


def compare(model: TrainedModel, rows: Sequence[Row], album: Sequence[str], top: int | None, out: str) -> Comparison:
    """Compare two faces, and search an album for the images most similar to each face.

    Args:
        model: the face model.
        rows: of all files; those with an embedding are compared, and get `most_similar` from the search.
        album: paths of the images to search; none for no search.
        top: number of images that a search lists, DEFAULT_TOP if None.
        out: folder that EMBEDDINGS_FILE is written to.
    """
    metadata: dict[str, Any] = {}
    lines: list[str] = []
    failures: list[Failure] = []
    rows = [row for row in rows if "embedding" in row]
    if not rows:
        return Comparison({}, (), ())
    units = np.array([row["embedding"] for row in rows])
    path = os.path.join(out, EMBEDDINGS_FILE)
    np.savez(path, files=[row["file"] for row in rows], embeddings=units.astype(np.float32))
    if len(rows) == 2:
        cosine, distance = float(units[0] @ units[1]), float(((units[0] - units[1]) ** 2).sum())
        metadata.update(cosine=cosine, squared_distance=distance)
        lines.append(f"similarity of the two: cosine {cosine:.4f}, squared distance {distance:.4f}")
    if album:
        print(f"searching {len(album)} images ...", flush=True)
        paths, cosines, failures = search(model.trainer, model.cfg.data, units, album)
        for row, similarities in zip(rows, cosines):
            ranking = np.argsort(-similarities, kind="stable")[: top or DEFAULT_TOP]
            row["most_similar"] = [{"file": paths[index], "cosine": float(similarities[index])} for index in ranking]
            hits = ", ".join(f"{paths[index]} {similarities[index]:.4f}" for index in ranking)
            lines.append(f"{row['file']} is most similar to: {hits or 'nothing, as no image could be read'}")
    return Comparison(metadata, lines, failures)


def search(
    trainer: Inference, settings: Any, units: np.ndarray, album: Sequence[str]
) -> tuple[list[str], np.ndarray, list[Failure]]:
    """Compare faces with every image of an album.

    Args:
        trainer: of the face model.
        settings: of the data set that it was trained on.
        units: normalized embeddings of the faces, (N, d).
        album: paths of the images.

    Returns:
        The paths of the n images that have an embedding, the cosines (N, n), and the other images.
    """
    paths: list[str] = []
    cosines = [np.empty((len(units), 0))]
    failures: list[Failure] = []
    for first in range(0, len(album), BATCH_SIZE):
        names, images = [], []
        for path in album[first : first + BATCH_SIZE]:
            try:
                images.append(read_face(path, settings))
                names.append(path)
            except BadSample as error:
                failures.append(Failure(path, str(error)))
        if not names:
            continue
        embeddings, _ = embed(trainer, np.stack(images))
        finite = np.isfinite(embeddings).all(1)
        failures += [Failure(name, NO_DIRECTION) for name, is_finite in zip(names, finite) if not is_finite]
        paths += [name for name, is_finite in zip(names, finite) if is_finite]
        cosines.append(units @ embeddings[finite].T)
    return paths, np.concatenate(cosines, 1), failures
