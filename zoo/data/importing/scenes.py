"""Scenes, what labels of all formats are read into, and what their readers share."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import PureWindowsPath
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zoo.data.errors import BadSample, parsing, printable
from zoo.data.formats import regular
from zoo.data.formats.file_names import split_of
from zoo.data.importing import shapes
from zoo.data.importing.shapes import Shape

T = TypeVar("T")
LeaveOut = Callable[[str, str], None]  # is called with what is left out, or the file that holds it, and why
JSON_EXPANSION = 40  # limit of memory, in sizes of a file: polygons may be short numbers, of which there are many


class Scene(NamedTuple):
    """The labels of an image.

    Attributes:
        source: what names them in messages, and the mask that is written.
        image: path of the image as the labels state it, relative to their folder.
        size: width and height as the labels state them, perhaps None.
        embedded: the content of the image within the labels, in base64.
    """

    source: str
    image: str
    size: tuple[int | None, int | None]
    shapes: list[Shape]
    embedded: str | None = None


class Labels(NamedTuple):
    """The labels of a data set.

    Attributes:
        folder: in which, or below which, their images are.
        scenes: reads the labels in order, once for every call.
        declared: names of all classes in their order; none where the labels do not state it.
        attribute: of VIA's regions, which holds the class.
    """

    folder: str
    scenes: Callable[[LeaveOut], Iterator[Scene]]
    declared: Iterable[str] = ()
    attribute: str | None = None


def split_folders(folders: Iterable[str]) -> dict[str, str]:
    """Return the split that the name of each folder states; the folder itself, if it states none or another does."""
    places = {folder: os.path.join(*(split_of(part) or part for part in folder.split(os.sep))) for folder in folders}
    counts = Counter(places.values())
    return {folder: place if counts[place] == 1 else folder for folder, place in places.items()}


def polygon(label: str, points: np.ndarray, order: float = 0) -> Shape:
    return Shape(label, partial(shapes.polygon, points), order)


def each(entries: Iterable[tuple[str, Any]], read: Callable[..., Iterable[T]], leave_out: LeaveOut) -> Iterator[T]:
    """Yield what is read from entries of any type, each with the name of its source; leave out what cannot be read."""
    for source, entry in entries:
        try:
            with parsing("invalid labels", kind=BadSample):
                found = list(read(source, entry, leave_out))
        except BadSample as error:
            leave_out(source, str(error))
            continue
        yield from found


def load_json(path: str) -> Any:
    return regular.parse_json(regular.read(path).decode("utf-8-sig"), True, JSON_EXPANSION)


def name_of(label: Any) -> str:
    """Return the name of a label on one line. Raises BadSample."""
    name = " ".join(printable(label).split()) if isinstance(label, str) else ""
    if not name:
        raise BadSample("shape without a name of a class")
    return name


def slashes(path: str) -> str:
    """Return a path with slashes, whatever system wrote it."""
    return PureWindowsPath(path).as_posix()


def below(path: str) -> str:
    """Return a path that stays below the folder that it is joined to: its last name, if it would leave that."""
    path = os.path.normpath(path)
    return os.path.basename(path) if path.startswith(("..", "/")) or ":" in path else path
