"""What a net for faces says of pictures: their embeddings, how similar two are, and which of a folder are most so."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.errors import BadSample
from data.formats import face_files
from zoo.trainer.protocol import Trainer

EMBEDDINGS = "embeddings.npz"
BATCH = 64  # pictures of a searched folder that the net sees at once
NO_DIRECTION = "its embedding is zero or not finite; the weights may be those of a run that failed"

Row = dict[str, Any]
Failure = tuple[str, str]  # path and reason


class Comparison(NamedTuple):
    """What is said of all faces together. facts: for predictions.json; lines: for the screen."""

    facts: dict[str, Any]
    lines: Sequence[str]
    failures: Sequence[Failure]


NOTHING = Comparison({}, (), ())


def read(path: str, settings: Any) -> np.ndarray:
    """A picture as the net wants it, uint8 (size, size, 3). Raises BadSample."""
    # The noise of random_faces has no files and no such key: a net that was trained on it takes every size.
    return face_files.decode(path, settings.size, getattr(settings, "resize", True))


def embed(trainer: Trainer, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of pictures (N, size, size, 3) as an evaluation compares them: mirror images added, then of length 1.

    float64 (N, d), NaN where there is no direction; and (N,), the mean length that the net gave them.
    """
    views = trainer.predict(trainer.to_device({"image": images})).astype(np.float64)
    summed = views.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        units = summed / np.linalg.norm(summed, axis=1, keepdims=True)
    return units, np.linalg.norm(views, axis=2).mean(1)


def describe(model: Any, path: str, *_: Any) -> tuple[str, Row]:
    """The embedding of a face, in the row. model: of tools/predict.py. Raises BadSample."""
    (unit,), (length,) = embed(model.trainer, np.stack([read(path, model.cfg.data)]))
    if not np.isfinite(unit).all():
        raise BadSample(NO_DIRECTION)
    return f"embedding of {len(unit)} numbers, length {length:.4g}", {"embedding": unit.tolist(), "length": length}


def compare(model: Any, rows: Sequence[Row], album: Sequence[str], top: int, out: str) -> Comparison:
    """How similar two faces are, and for each face the `top` most similar pictures of an album, if one is given.

    Writes all embeddings to the folder `out`; rows get what was found, `most_similar`.
    """
    facts: dict[str, Any] = {}
    lines: list[str] = []
    failures: list[Failure] = []
    rows = [row for row in rows if "embedding" in row]
    if not rows:
        return NOTHING
    units = np.array([row["embedding"] for row in rows])
    np.savez(os.path.join(out, EMBEDDINGS), files=[row["file"] for row in rows], embeddings=units.astype(np.float32))
    if len(rows) == 2:
        cosine, distance = float(units[0] @ units[1]), float(((units[0] - units[1]) ** 2).sum())
        facts.update(cosine=cosine, squared_distance=distance)
        lines.append(f"similarity of the two: cosine {cosine:.4f}, squared distance {distance:.4f}")
    if album:
        print(f"searching {len(album)} pictures ...", flush=True)
        paths, cosines = search(model.trainer, model.cfg.data, units, album, failures)
        for row, each in zip(rows, cosines):
            best = np.argsort(-each, kind="stable")[:top]
            row["most_similar"] = [{"file": paths[index], "cosine": float(each[index])} for index in best]
            hits = ", ".join(f"{paths[index]} {each[index]:.4f}" for index in best)
            lines.append(f"{row['file']} is most similar to: {hits or 'nothing, as no picture could be read'}")
    return Comparison(facts, lines, failures)


def search(
    trainer: Trainer, settings: Any, units: np.ndarray, album: Sequence[str], failures: list[Failure]
) -> tuple[list[str], np.ndarray]:
    """Paths of an album's pictures (n), and their cosines to embeddings of length 1: (N, d) -> (N, n).

    Pictures that say nothing are left out and told in `failures`.
    """
    paths: list[str] = []
    cosines = [np.empty((len(units), 0))]
    for names, images in batches(settings, album, failures):
        found, _ = embed(trainer, images)
        good = np.isfinite(found).all(1)
        failures += [(name, NO_DIRECTION) for name, is_good in zip(names, good) if not is_good]
        paths += [name for name, is_good in zip(names, good) if is_good]
        cosines.append(units @ found[good].T)
    return paths, np.concatenate(cosines, 1)


def batches(settings: Any, paths: Sequence[str], failures: list[Failure]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Paths and pictures (n, size, size, 3), BATCH of them at a time; those that cannot be read go to `failures`."""
    names: list[str] = []
    images: list[np.ndarray] = []
    for path in paths:
        try:
            images.append(read(path, settings))
        except BadSample as error:
            failures.append((path, str(error)))
            continue
        names.append(path)
        if len(names) == BATCH:
            yield names, np.stack(images)
            names, images = [], []
    if names:
        yield names, np.stack(images)
