"""WebDataset's samples: files whose names differ in the extension alone, of which `.cls` holds the label."""

import os

from zoo.data.errors import parsing
from zoo.data.formats import images, regular
from zoo.data.formats.lists import LabeledPath, is_number, walk

LABEL = ".cls"


def read_labeled(root: str, folder: str) -> list[LabeledPath]:
    """Return the images of a folder in root that lie beside a file with their label; none if it has no such files.

    Raises:
        UserError: an image has no label, or its label is no number.
    """
    names = next(walk(os.path.join(root, folder)), ("", []))[1]
    labeled = {name.removesuffix(LABEL) for name in names if name.endswith(LABEL)}
    if not labeled:
        return []
    entries = []
    for name in names:
        stem, extension = os.path.splitext(name)
        if extension.lower() in images.EXTENSIONS:
            entries.append(LabeledPath(os.path.join(folder, name), _label(os.path.join(root, folder, stem), name)))
    return entries


def _label(stem: str, image: str) -> int:
    path = stem + LABEL
    with parsing(f"{path}: cannot read the label of {image}", "it should hold a whole number, counted from 0"):
        text = regular.read(path, limit=100).decode().strip()
        if not is_number(text):
            raise ValueError(f"got {text!r}")
    return int(text)
