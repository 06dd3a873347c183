"""WebDataset's samples: files whose names differ in the extension alone, of which `.cls` holds the label."""

import os

from zoo.data.errors import parsing
from zoo.data.formats import images, regular
from zoo.data.formats.lists import LabeledPath, is_number, walk

LABEL = ".cls"


def read_labeled(root: str, folder: str) -> list[LabeledPath]:
    """Return the images below a folder in root that lie beside files with their labels.

    Whether there are such files, the first folder with images says: if it has none, none is returned.

    Raises:
        UserError: an image has no label, or its label is no number.
    """
    entries = list[LabeledPath]()
    for path, names in walk(os.path.join(root, folder)):
        found = [name for name in names if os.path.splitext(name)[1].lower() in images.EXTENSIONS]
        if found and not entries and not any(name.endswith(LABEL) for name in names):
            return []
        inner = os.path.relpath(path, root)
        for name in found:
            label = _label(os.path.join(path, os.path.splitext(name)[0]), name)
            entries.append(LabeledPath(name if inner == os.curdir else os.path.join(inner, name), label))
    return entries


def _label(stem: str, image: str) -> int:
    path = stem + LABEL
    with parsing(f"{path}: cannot read the label of {image}", "it should hold a whole number, counted from 0"):
        text = regular.read(path, limit=100).decode().strip()
        if not is_number(text):
            raise ValueError(f"got {text!r}")
    return int(text)
