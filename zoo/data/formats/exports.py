"""Folders as labeling programs and phones leave them, and what makes a data set of it."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from zoo.data.errors import BadSample
from zoo.data.formats import images, regular
from zoo.data.formats.file_names import unsplit
from zoo.data.formats.lists import walk

HEAD = 1 << 16  # bytes of a file of labels that are looked at
LOOKED_AT = 8  # such files
PHONE = (".heic", ".heif")
COCO, LABELME = re.compile(r'"images"\s*:\s*\['), re.compile(r'"shapes"\s*:\s*\[')
SUPERVISELY = re.compile(r'"(?:geometryType|classTitle)"\s*:')
YOLO = re.compile(r"\s*\d+((?:[ \t]+[-+.\deE]+){4,})[ \t]*(?:\r?\n|$)")
BOX = 4  # numbers of a line
STUDIO = re.compile(r'"(?:original_width|brushlabels|polygonlabels)"\s*:')
VIA = re.compile(r'"(?:_via_settings|shape_attributes)"\s*:')
BOXES = "boxes, which no task here learns; masks or polygons, exported as COCO, are for `zoo data import`"


class Files(NamedTuple):
    """The files below a folder.

    Attributes:
        paths: relative to it, those nearest to it first.
        stems: names of the images among them.
    """

    root: str
    paths: list[str]
    stems: set[str]

    def heads(self, extension: str, beside: bool) -> Iterator[tuple[str, str]]:
        """Yield the first files of a kind with their beginnings; beside: those with names of images, or all others."""
        found = [path for path in self.paths if path.lower().endswith(extension)]
        for path in [path for path in found if (stem(path) in self.stems) == beside][:LOOKED_AT]:
            with suppress(BadSample, OSError), regular.open_file(os.path.join(self.root, path)) as file:
                yield path, file.read(HEAD).decode("utf-8-sig", errors="replace")

    def command(self, path: str) -> str:
        name = os.path.basename(os.path.abspath(self.root))
        labels = os.path.normpath(os.path.join(self.root, path))
        return f"`{shlex.join(['zoo', 'data', 'import', labels, '--out', f'{name}-scenes'])}` makes masks of them"

    def command_of(self, settings: str) -> str:
        """Return the command for the folder with a file that names the classes; what is missing where there is none."""
        found = next((path for path in self.paths if os.path.basename(path) == settings), None)
        if found is None:
            return f", whose {settings} is not there, which names the classes; export them anew"
        return f": {self.command(os.path.dirname(found) or os.curdir)}"


def stem(path: str) -> str:
    """Return the name of a file without extension: photo of photo.jpg, photo.json and photo.jpg.json."""
    name = os.path.splitext(os.path.basename(path))[0]
    return os.path.splitext(name)[0] if name.lower().endswith(images.EXTENSIONS) else name


def recognize(root: str) -> str:
    """Say what the labels in a folder are, and what makes a data set of them; "" where there are none."""
    paths = [os.path.relpath(os.path.join(folder, name), root) for folder, names in walk(root) for name in names]
    paths.sort(key=lambda path: (path.count("/"), path))
    files = Files(root, paths, {stem(path) for path in paths if path.lower().endswith(images.EXTENSIONS)})
    return _json(files) or _xml(files) or _yolo(files)


def _json(files: Files) -> str:
    for beside in (False, True):
        for path, head in files.heads(".json", beside):
            for program, mark in (("Label Studio", STUDIO), ("VIA", VIA)):
                if mark.search(head):
                    return f"labels of {program} ({path}): {files.command(path)}"
            if SUPERVISELY.search(head):
                return f"labels of Supervisely ({path}){files.command_of('meta.json')}"
            if COCO.search(head):
                same = [each for each in files.paths if unsplit(each) == unsplit(path)]
                return f"labels of COCO ({path}): {files.command(path if len(same) == 1 else os.curdir)}"
            if LABELME.search(head):
                alike = [each for each in files.paths if each.lower().endswith(".json")]
                folder = os.path.commonpath([os.path.dirname(each) or os.curdir for each in alike])
                return f"labels of LabelMe ({path}): {files.command(folder)}"
    return ""


def _xml(files: Files) -> str:
    for path, head in (*files.heads(".xml", False), *files.heads(".xml", True)):
        if "<annotations" in head:
            return f"labels of CVAT ({path}): {files.command(path)}"
        if "<annotation" in head:
            return f"labels of PASCAL VOC ({path}), {BOXES}"
    return ""


def _yolo(files: Files) -> str:
    for path, head in files.heads(".txt", True):
        if line := YOLO.match(head):
            is_box = len(line[1].split()) == BOX
            return f"labels of YOLO ({path})" + (f", {BOXES}" if is_box else files.command_of("data.yaml"))
    return ""
