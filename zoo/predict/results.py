"""Inputs and results of predictions: files, folders and frames; a sample and a row per file."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from zoo.config.schema import Config
from zoo.data import sources
from zoo.data.formats.lists import walk
from zoo.predict.urls import is_url, shown_name, without_secrets
from zoo.trainer.protocol import Inference

Source = str | np.ndarray  # a path, or decoded pixels: uint8 RGB (H, W, 3), of a video (n, H, W, 3)
MAX_STEM = 200  # bytes of a name without its extension, of the 255 that file systems allow
DEFAULT_TOP = 5  # classes, or images found by a search, to list for a file

Row = dict[str, Any]  # of one file in predictions.jsonl


class TrainedModel(NamedTuple):
    """A model with loaded weights and the recipe that it was trained with.

    Attributes:
        trainer: predicts in fp32, or as it was exported.
        class_names: of the model's outputs, in order; empty for faces.
        metadata: what origin.json records about the model.
        head: weight and bias of the classifier by canonical name; empty for faces and exported models.
        thresholds: chosen by an evaluation: of faces the squared distance by set of pairs, of images with several
            classes the probability by class.
    """

    cfg: Config
    trainer: Inference
    class_names: tuple[str, ...]
    metadata: dict[str, Any]
    head: Mapping[str, np.ndarray] = MappingProxyType({})
    thresholds: Mapping[str, float] = MappingProxyType({})


class Sample(NamedTuple):
    """The input of a model from a source.

    Attributes:
        batch: the model's input by field name, a row for each view of the source; empty for what is read frame by
            frame.
        image: uint8 RGB (H, W, 3), where a result has its pixels.
    """

    batch: dict[str, np.ndarray]
    image: np.ndarray | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the image."""
        return None if self.image is None else (self.image.shape[0], self.image.shape[1])

    @property
    def shapes(self) -> tuple[Any, ...]:
        """What samples that are computed at once have in common: the image's size, and the shapes of the input."""
        return self.size, *(array.shape for array in self.batch.values())


class Album(NamedTuple):
    """Images to search for faces.

    Attributes:
        units: their embeddings (n, d), of length 1.
        persons: the folder of each in that of the album; () where some lie in none.
        limit: cosine above which two faces are of one person; None if it is not known.
    """

    paths: Sequence[str]
    units: np.ndarray
    persons: Sequence[str] = ()
    limit: float | None = None


class Request(NamedTuple):
    """Wishes of a user for a file beside its prediction.

    Attributes:
        top: number of classes, or of images of the album, to list; None for the usual number.
        explain: name of the class to draw an explanation of; "" for the most probable one; None for no drawing.
        threshold: probability above which an image with several classes has one of them; None: that of each class.
        labels_only: write the label image of a scene alone.
    """

    top: int | None = None
    explain: str | None = None
    album: Album | None = None
    threshold: float | None = None
    labels_only: bool = False


class Input(NamedTuple):
    """A file or address to predict, or what is not there, and the reason."""

    path: str
    missing: str = ""

    @property
    def name(self) -> str:
        """As it is printed and written, without secrets."""
        return shown_name(self.path)


def output_stems(paths: Sequence[str]) -> list[str]:
    """Return a distinct file name for each path, without folder and extension: `name`, then `name-2` ..."""
    stems: dict[str, None] = {}
    for path in paths:
        stem = Path(os.path.abspath(without_secrets(path) if is_url(path) else path)).stem
        if len(os.fsencode(stem)) > MAX_STEM:
            stem = os.fsencode(stem)[:MAX_STEM].decode(errors="ignore")
        numbered = (f"{stem}-{number}" for number in range(2, len(paths) + 2))
        stems[stem if stem not in stems else next(name for name in numbered if name not in stems)] = None
    return list(stems)


def find_inputs(arguments: Sequence[str], extensions: tuple[str, ...], frame_template: str | None) -> list[Input]:
    """List the inputs of a model.

    Args:
        arguments: files and addresses, which are taken whatever their extension, and folders, which are searched.
        extensions: in lower case, of the files to take from folders.
        frame_template: name of a frame, such as `img_{:05d}.jpg`, where a folder of frames is one input.

    Returns:
        The paths, with a reason in the place of each argument that stands for none.
    """
    found: list[Input] = []
    for argument in arguments:
        if not is_url(argument) and sources.is_folder(argument):
            inside = list(map(Input, walk_inputs(argument, extensions, frame_template)))
            found += inside or [Input(argument, f"nothing in this folder ends in {', '.join(extensions)}")]
        else:
            is_there = is_url(argument) or sources.exists(argument)
            found.append(Input(argument, "" if is_there else "no such file"))
    return found


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
    if frame_template is None or not sources.is_folder(folder):
        return 0
    prefix, suffix = frame_template.partition("{")[0], frame_template.rpartition("}")[2]
    return sum(
        name.startswith(prefix) and name.endswith(suffix) and name[len(prefix) : len(name) - len(suffix)].isdecimal()
        for name in sources.listdir(folder)
    )
