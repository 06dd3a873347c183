"""What a folder of one's own files is: its task, and the settings of the data set that reads it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from zoo.data import audit
from zoo.data.datasets import cityscapes, common, imagenet
from zoo.data.errors import BadSample, UserError, similar_path
from zoo.data.formats import images
from zoo.data.formats.lists import MAX_EXTENSIONS, VIDEO_EXTENSIONS, class_folders, read_lines, walk
from zoo.data.packs import manifest

DATASETS = {"classify": "imagenet", "clips": "kinetics", "segment": "cityscapes", "faces": "faces"}  # by task
PREPARED = {"image": "classify", "video": "clips", "pair": "segment", "face": "faces"}  # by media
SCENES = (  # folders of images and their masks
    ("leftImg8bit", "gtFine"),
    *cityscapes.UNSPLIT_LAYOUTS,
    *(tuple(part.format("train") for part in layout) for layout in cityscapes.CUSTOM_LAYOUTS),
)
FACES = ("train.rec", "label.txt", "faces.csv", "pairs.txt")  # files that only faces have
ALIGNED = 112  # pixels, of faces
HELD_OUT = 0.2  # of the samples, where there is no validation split
LOOKED_AT = 40  # images whose size is read
LABELS = (".json", ".xml")  # of LabelMe, COCO, CVAT and PASCAL VOC
NO_CLASSES = (*chain(*common.SPLIT_NAMES.values()), "training", "test", "testing", "images")
ACCEPTED = """\
  classes of images or clips   <class>/*.jpg or <class>/*.mp4, perhaps below train/ and val/; or lists with labels
  scenes with masks            images/NAME.jpg and masks/NAME.png, perhaps below train/ and val/
  faces of persons             <person>/*.jpg, aligned to 112 x 112 pixels"""


class Found(NamedTuple):
    """What a folder is.

    Attributes:
        task: a key of DATASETS.
        layout: in words.
        settings: of the section `data`.
    """

    task: str
    layout: str
    settings: dict[str, Any]


def examine(root: str, task: str | None = None) -> Found:
    """Find out what a folder is.

    Args:
        root: the folder.
        task: a key of DATASETS; None to find it out.

    Raises:
        UserError: there is no such folder, or its task is not certain.
    """
    if os.path.isfile(root):
        raise UserError(f"{root}: is a file; name a folder, such as the one that an archive is unpacked to")
    if not os.path.isdir(root):
        raise UserError(f"{root}: there is no such folder{similar_path(root)}")
    named, layout = (task, f"read as --task {task}") if task else _task_of(root)
    settings: dict[str, Any] = {"name": DATASETS[named], "root": os.path.abspath(root)}
    if named == "faces":
        settings |= _faces(root)
        if "resize" in settings:
            layout += (
                f"; whole images become {ALIGNED} x {ALIGNED} pixels: of photos, `zoo data align` cuts out the faces"
            )
    if named == "segment" and not common.first_existing(root, ["classes.txt", manifest.NAME]):
        settings |= _classes_of_masks(root)
    return Found(named, layout, settings)


def median_size(paths: Sequence[str]) -> tuple[int, int] | None:
    """Return the median width and height of images, of which some are looked at; None if none can be read."""
    sizes = _sizes(paths)
    return tuple(int(side) for side in np.median(sizes, axis=0)) if sizes else None  # type: ignore[return-value]


def _sizes(paths: Sequence[str]) -> list[tuple[int, int]]:
    sizes = []
    for index in audit.spread(len(paths), LOOKED_AT):
        with suppress(BadSample):
            sizes.append(images.read(paths[index]).size)
    return sizes


def _task_of(root: str) -> tuple[str, str]:
    """Return the task of a folder, and its layout in words."""
    if manifest.is_prepared(root):
        return PREPARED[manifest.read(root).info.media], "prepared by zoo data prepare"
    for folders in SCENES:
        if all(os.path.isdir(os.path.join(root, name)) for name in folders):
            return "segment", f"images in {folders[0]}/ with masks in {folders[1]}/"
    if name := next((name for name in FACES if os.path.isfile(os.path.join(root, name))), None):
        return "faces", f"faces, because there is {name}"
    if path := common.first_existing(root, [name.format("train") for name in imagenet.LIST_FILES]):
        return _task_of_list(path), f"files listed in {os.path.basename(path)}"
    return _task_of_classes(root)


def _task_of_list(path: str) -> str:
    """Return the task by the first line of a list."""
    line = next(iter(read_lines(path, "this list").values()), "").lower()
    if line.endswith(".png"):
        return "segment"
    return "classify" if line.rpartition(" ")[0].rstrip().endswith(images.EXTENSIONS) else "clips"


def _task_of_classes(root: str) -> tuple[str, str]:
    """Return the task by the files in a folder per class."""
    name = common.split_name(root, "train") or ""
    parent, classes, (_, loose) = os.path.join(root, name), class_folders(root, name), next(walk(root))
    paths = [
        os.path.join(path, file)
        for each in classes
        for path, files in walk(os.path.join(parent, each))
        for file in files
    ]
    photos, videos, labels = (
        [path for path in paths if path.lower().endswith(suffixes)]
        for suffixes in (images.EXTENSIONS, VIDEO_EXTENSIONS, LABELS)
    )
    labels += [file for file in loose if file.lower().endswith(LABELS)]
    if labels and (2 * len(labels) >= len(photos + videos) or {"annotations", "images"} & set(map(str.lower, classes))):
        raise UserError(
            f"{root}: has labels such as {os.path.basename(labels[0])}, of which `zoo data import` makes masks; or say "
            "with --task what to train on the images"
        )
    if photos and videos:
        raise UserError(
            f"{root}: has {len(photos)} images and {len(videos)} videos in folders per class; say what to train on "
            "with --task classify or --task clips"
        )
    if not photos and not videos:
        media = sum(file.lower().endswith(images.EXTENSIONS + VIDEO_EXTENSIONS) for file in loose)
        kinds = ", ".join(sorted({os.path.splitext(path)[1].lower() for path in paths})[:MAX_EXTENSIONS])
        found = f"there is nothing to train on{kinds and f' (files of other kinds: {kinds})'}"
        found = f"{media} images and videos are in no folder of a class" if media else found
        raise UserError(f"{root}: {found}; it should hold\n{ACCEPTED}")
    is_alone = len(classes) == 1 and not name
    if odd := [each for each in classes if is_alone or each.lower() in NO_CLASSES]:
        raise UserError(
            f"{root}: {', '.join(odd)} would be {'the only' if is_alone else 'a'} class; name the folder that holds "
            f"those of the classes, such as {os.path.join(parent, odd[0])}; splits are named train and val, folders of "
            f"scenes images and masks; or take it as it is with --task {'classify' if photos else 'clips'}"
        )
    layout = f"{len(classes)} class folders of {'images' if photos else 'videos'} in {parent}"
    folders = {os.path.join(parent, each) for each in classes}
    if any(os.path.dirname(path) not in folders for path in photos):
        layout += ", or below, each a sample of its own (frames of clips need a list: docs/data.md)"
    unread = [each for each in class_folders(root, "") if name and each not in chain(*common.SPLIT_NAMES.values())]
    layout += f"; not read: {', '.join(unread)}" if unread else ""
    if photos and set(_sizes(photos)) == {(ALIGNED, ALIGNED)}:
        raise UserError(
            f"{root}: has images of {ALIGNED} x {ALIGNED} pixels in {len(classes)} folders, which may be aligned faces "
            "of persons or small images of classes; say which with --task faces or --task classify"
        )
    return ("classify" if photos else "clips"), layout


def _faces(root: str) -> dict[str, Any]:
    """Return settings of a set of faces: its own verification sets, and whether images are resized."""
    own = sorted(name for name in os.listdir(root) if name.endswith(".bin") or name == "pairs.txt")
    settings: dict[str, Any] = {"verification": own}
    name = common.split_name(root, "train") or ""
    paths = [os.path.join(path, file) for path, files in walk(os.path.join(root, name)) for file in files]
    sizes = _sizes([path for path in paths if path.lower().endswith(images.EXTENSIONS)])
    return {**settings, "resize": True} if set(sizes) - {(ALIGNED, ALIGNED)} else settings


def _classes_of_masks(root: str) -> dict[str, Any]:
    """Return the number of classes of scenes without class names: what their masks hold; nothing for Cityscapes."""
    if os.path.isdir(os.path.join(root, "leftImg8bit")):
        return {}
    splits = cityscapes.load(cityscapes.Settings(root=root, num_classes=255))
    found = [split.inventory(deep=True).pixels for split in splits]
    largest = max(int(np.flatnonzero(pixels).max(initial=0)) for pixels in found if pixels is not None)
    return {"num_classes": max(2, largest + 1)}
