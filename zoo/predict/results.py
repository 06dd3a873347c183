"""Inputs and results of predictions: files, folders and frames; a row per file, predictions.json."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.config.schema import Config
from zoo.data.formats.lists import walk
from zoo.trainer.protocol import Inference

Source = str | np.ndarray  # a path, or decoded pixels: uint8 RGB (H, W, 3), of a video (n, H, W, 3)
FILE_NAME = "predictions.json"
DEFAULT_TOP = 5  # classes, or images found by a search, to list for a file

Row = dict[str, Any]  # of one file in predictions.json


class TrainedModel(NamedTuple):
    """A model with loaded weights and the recipe that it was trained with.

    Attributes:
        cfg: the recipe.
        trainer: predicts in fp32, or as it was exported.
        class_names: of the model's outputs, in order; empty for faces.
        metadata: what predictions.json records about the model.
    """

    cfg: Config
    trainer: Inference
    class_names: tuple[str, ...]
    metadata: dict[str, Any]


class Prediction(NamedTuple):
    """The result for one file: a line for the screen and a row for predictions.json."""

    line: str
    row: Row


class Failure(NamedTuple):
    """A file that has no result."""

    path: str
    reason: str

    @property
    def row(self) -> Row:
        return {"file": self.path, "error": self.reason}


def write_results(folder: str, metadata: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write predictions.json, one JSON object whose `files` take a line each; an existing file is not replaced."""
    head, body = json.dumps(dict(metadata), indent=1)[:-2], ",\n  ".join(map(json.dumps, rows))
    with open(os.path.join(folder, FILE_NAME), "x", encoding="utf-8") as file:
        file.write(f'{head},\n "files": [\n  {body}\n ]\n}}\n')


def output_stems(paths: Sequence[str]) -> list[str]:
    """Return a distinct file name for each path, without folder and extension: `name`, then `name-2` ..."""
    stems: dict[str, None] = {}
    for path in paths:
        stem = Path(os.path.abspath(path)).stem
        numbered = (f"{stem}-{number}" for number in range(2, len(paths) + 2))
        stems[stem if stem not in stems else next(name for name in numbered if name not in stems)] = None
    return list(stems)


def find_inputs(
    arguments: Sequence[str], extensions: tuple[str, ...], frame_template: str | None
) -> tuple[list[str], list[Failure]]:
    """List the inputs of a model.

    Args:
        arguments: files, which are taken whatever their extension, and folders, which are searched.
        extensions: in lower case, of the files to take from folders.
        frame_template: name of a frame, such as `img_{:05d}.jpg`, where a folder of frames is one input.

    Returns:
        The paths, and a failure for each argument that stands for none.
    """
    paths: list[str] = []
    failures: list[Failure] = []
    for argument in arguments:
        if os.path.isdir(argument):
            matches = list(walk_inputs(argument, extensions, frame_template))
            reason = f"nothing in this folder ends in {', '.join(extensions)}"
        else:
            matches = [argument] if os.path.exists(argument) else []
            reason = "no such file"
        paths += matches
        if not matches:
            failures.append(Failure(argument, reason))
    return paths, failures


def walk_inputs(folder: str, extensions: tuple[str, ...], frame_template: str | None) -> Iterator[str]:
    """Yield the inputs in a folder and below in the order of their names, hidden ones left out."""
    for path, names in walk(folder):
        if count_frames(path, frame_template):
            yield path
        for name in names:
            if name.lower().endswith(extensions):
                yield os.path.join(path, name)


def count_frames(folder: str, frame_template: str | None) -> int:
    """Count the files of a folder that are numbered by a template; 0 without a template or a folder."""
    if frame_template is None or not os.path.isdir(folder):
        return 0
    prefix, suffix = frame_template.partition("{")[0], frame_template.rpartition("}")[2]
    return sum(
        name.startswith(prefix) and name.endswith(suffix) and name[len(prefix) : len(name) - len(suffix)].isdecimal()
        for name in os.listdir(folder)
    )
