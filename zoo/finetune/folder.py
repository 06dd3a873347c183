"""Recognition of a folder of one's own files: its task, and the settings of the data set that reads it."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from zoo.data import audit, sources
from zoo.data.datasets import cityscapes, common
from zoo.data.errors import BadSample, Option, UserError, similar_path
from zoo.data.formats import exports, images, label_sets, label_tables, layouts, splits, table_rows
from zoo.data.formats.file_names import split_of
from zoo.data.formats.lists import ANIMATIONS, MAX_EXTENSIONS, VIDEO_EXTENSIONS, class_folders, read_lines, walk
from zoo.data.packs import manifest

DATASETS = {  # by task
    "classify": "imagenet",
    "multilabel": "multilabel",
    "clips": "kinetics",
    "segment": "cityscapes",
    "faces": "faces",
}
PREPARED = {"image": "classify", "video": "clips", "pair": "segment", "face": "faces"}  # by media
CITYSCAPES = ("leftImg8bit", "gtFine")
FACES = ("train.rec", "label.txt", "faces.csv", "pairs.txt")  # files that only faces have
ALIGNED = 112  # pixels, of faces
HELD_OUT = 0.2  # of the samples, where there is no validation split
MOST = 0.5  # of the images in folders, which a table names
LOOKED_AT = 40  # images whose size is read
TABLES = (".csv", ".tsv", ".jsonl", ".xlsx", ".parquet")  # of labels
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
LABEL = re.compile(r"([\s,;]+\d+)+$")  # of a line, and a number of frames; commas are refused by its reader
ACCEPTED = """\
  classes of images or clips   <class>/*.jpg or <class>/*.mp4, perhaps below train/ and val/; or lists with labels
  scenes with masks            images/NAME.jpg and masks/NAME.png, perhaps below train/ and val/
  faces of persons             <person>/*.jpg, aligned to 112 x 112 pixels"""


class Found(NamedTuple):
    task: str
    layout: str
    settings: dict[str, Any]


def examine(root: str, task: str | None = None) -> Found:
    """Find out what a folder is.

    Args:
        task: a key of DATASETS; None to find it out.
    """
    sources.check_root(root)
    if not sources.is_folder(root) and sources.is_file(root):
        raise UserError(f"{root}: is a file; name a folder, or a tar or zip archive")
    if not sources.is_folder(root):
        raise UserError(f"{root}: there is no such folder{similar_path(root)}")
    named, layout = (task, f"read as --task {task}") if task else _task_of(root)
    settings: dict[str, Any] = {"name": DATASETS[named], "root": sources.absolute(root)}
    if named in ("classify", "multilabel", "clips"):
        tables, others = _tables(root, task)  # by whole paths: a name may be that of a file in the current folder
        settings |= {f"{split}_list": os.path.join(settings["root"], name) for split, name in tables.items()}
        layout += others
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
    if manifest.is_prepared(root):
        return PREPARED[manifest.read(root).info.media], "prepared by zoo data prepare"
    if all(sources.is_folder(os.path.join(root, name)) for name in CITYSCAPES):
        return "segment", "images in {}/ with masks in {}/".format(*CITYSCAPES)
    if name := next((name for name in FACES if sources.is_file(os.path.join(root, name))), None):
        return "faces", f"faces, because there is {name}"
    if path := common.first_existing(root, [name.format("train") for name in common.LIST_FILES]):
        return _task_of_list(path), f"files listed in {os.path.basename(path)}"
    if folders := cityscapes.find_layout(root):
        of_images, of_masks = (name.replace("{}", "<split>") for name in folders)
        beside = "beside them" if of_images == of_masks else f"in {of_masks}/"
        return "segment", f"images in {of_images}/ with masks {beside}"
    if labels := exports.recognize(root):
        raise UserError(f"{root}: holds {labels}; or say with --task what to train on the images as they are")
    return _task_of_classes(root)


def _task_of_list(path: str) -> str:
    line = next(iter(read_lines(path, "this list").values()), "").lower()
    if line.endswith(".png"):
        return "segment"
    return "classify" if LABEL.sub("", line).endswith(images.EXTENSIONS) else "clips"


def _tables(root: str, task: str | None) -> tuple[dict[str, str], str]:
    """Return tables of labels, by split, if these say the classes, and words on folders that do not.

    Args:
        task: that the user gives; it decides where folders may be classes, too.
    """
    tables, name = table_rows.find(root), splits.class_split(root, "train") or ""
    is_listed = bool(common.first_existing(root, [name.format("train") for name in common.LIST_FILES]))
    if task == "multilabel" or is_listed or manifest.is_prepared(root):
        return ({} if task != "multilabel" else tables), ""
    classes = [each for each in class_folders(root, name) if split_of(each) is None]
    if len(classes) < 2:
        return tables, ""
    if tables and _says_classes(root, tables["train"], name, classes, task):
        nulls = "".join(f" -o data.{split}_list=null" for split in tables)
        choice = f"(with --task classify{nulls}, they are)"
        return tables, f"; {len(classes)} folders such as {classes[0]} are no classes {choice}"
    unread = [each for each in sources.listdir(root) if table_rows.is_table(each)]
    return {}, f"; not read: {', '.join(unread)}" * bool(unread)


def _says_classes(root: str, table: str, name: str, classes: Sequence[str], task: str | None) -> bool:
    """Return whether a table, not the folders of its images, says the classes. Raises UserError if either may.

    Args:
        name: of the folder that holds these folders, below root.
    """
    path = os.path.join(root, table)
    files = label_tables.Files(root, (*images.EXTENSIONS, *VIDEO_EXTENSIONS))
    columns = table_rows.IMAGES if _ending(files.paths, images.EXTENSIONS) else table_rows.CLIPS
    folder_of = {file: os.path.relpath(file, name or os.curdir).partition("/")[0] for file in files.paths}
    inside = {file for file, folder in folder_of.items() if folder in classes}
    try:
        is_sure = label_sets.names_classes(path, columns, several=task is None)
        rows = [row for row in label_tables.listed(path, files, columns) if inside.intersection(row[2])]
    except UserError:  # it has no column of images, or is no table
        return False
    found = {file: label for _, label, names in rows for file in names if file in inside}
    if is_sure is None or not found:
        return False
    is_most = len(found) >= MOST * len(inside)
    pairs = {(folder_of[file], label) for file, label in found.items()}
    if len(pairs) == len({folder for folder, _ in pairs}) == len({label for _, label in pairs}) > 1:
        return is_sure and is_most and not splits.class_split(root, "val")  # these folders are the classes of the table
    if is_sure and is_most:
        return True
    by_id = not any(name.lower().endswith(files.extensions) for name, _, _ in rows)
    if task or (by_id and not is_most):  # numbers may agree by chance
        return False
    raise UserError(
        f"{root}: {len(classes)} folders such as {classes[0]} may be classes, or {table} may say them, which names "
        f"{len(found)} of their {len(inside)} files; take the folders with ",
        Option("--task", "classify"),
        ", or the table with this and ",
        Option("data.train_list", path),
        ", or, if images have several classes, with ",
        Option("--task", "multilabel"),
    )


def _task_of_classes(root: str) -> tuple[str, str]:
    if tables := _tables(root, None)[0]:
        files = [name for _, names in walk(root) for name in names]
        listed = f"listed in {' and '.join(tables.values())}"
        if _ending(files, VIDEO_EXTENSIONS) and not _ending(files, images.EXTENSIONS):
            return "clips", f"videos {listed}"
        layout = f"images {listed}"
        given = table_rows.with_val({split: os.path.join(root, name) for split, name in tables.items()}, [])
        several = label_sets.has_several({split: path for split, path in given.items() if path})
        return ("multilabel", f"{layout}, with any number of classes") if several else ("classify", layout)
    name = splits.class_split(root, "train") or ""
    root = root.rstrip("/")
    parent, classes = os.path.join(root, name) if name else root, class_folders(root, name)
    loose = [os.path.join(path, file) for path in {root, parent} for file in next(walk(path))[1]]
    paths = [
        os.path.join(path, file)
        for each in classes
        for path, files in walk(os.path.join(parent, each))
        for file in files
    ]
    photos, videos = (_ending(paths, suffixes) for suffixes in (images.EXTENSIONS, VIDEO_EXTENSIONS))
    phone = _ending([*paths, *loose], exports.PHONE)
    gifs = _ending(photos, ANIMATIONS)
    if layouts.count_animations(gifs)[0]:
        photos, videos = [path for path in photos if path not in {*gifs}], videos + gifs
    if len(phone) > len(photos):
        raise UserError(
            f"{root}: {len(phone)} photos such as {phone[0]} are HEIC, which is not read; save them as JPEG, as with "
            "`magick mogrify -format jpg *.HEIC`; MOV files of a phone beside them are no clips of their own"
        )
    if photos and videos:
        raise UserError(
            f"{root}: has {len(photos)} images and {len(videos)} videos in folders per class; say what to train on "
            "with --task classify or --task clips"
        )
    task = "classify" if photos else "clips"
    deep = [path for path in photos or videos if os.path.dirname(os.path.dirname(path)) != parent]
    is_alone = len(classes) == 1 and not name
    if not (photos or videos) or (is_alone and not deep):
        raise UserError(f"{root}: {_outside_classes(root, parent, [*paths, *loose])}")
    if is_alone:
        raise UserError(
            f"{root}: {classes[0]} would be the only class; name the folder that holds those of the classes, such as "
            f"{os.path.join(parent, classes[0])}; or take it as it is with --task {task}"
        )
    if doubt := layouts.doubts(root, name, [os.path.relpath(path, root) for path in photos or videos]):
        raise UserError(f"{root}: {doubt}; or take it as it is with --task {task}")
    layout = f"{len(classes)} classes in {parent}, a folder of {'images' if photos else 'videos'} each"
    layout += ", or of folders of them" if deep else ""
    read = {(splits.class_split(root, split) or "").partition("/")[0] for split in common.SPLITS}
    unread = [each for each in class_folders(root, "") if name and each not in read]
    layout += f"; not read: {', '.join(unread)}" if unread else ""
    if photos and set(_sizes(photos)) == {(ALIGNED, ALIGNED)}:
        raise UserError(
            f"{root}: has images of {ALIGNED} x {ALIGNED} pixels in {len(classes)} folders, which may be aligned faces "
            "of persons or small images of classes; say which with --task faces or --task classify"
        )
    return task, layout


def _outside_classes(root: str, parent: str, paths: Sequence[str]) -> str:
    """Say what there is in place of class folders."""
    media = _ending(paths, (*images.EXTENSIONS, *VIDEO_EXTENSIONS))
    if not media:
        kinds = ", ".join(sorted({os.path.splitext(path)[1].lower() for path in paths})[:MAX_EXTENSIONS])
        kinds = kinds and f" (files of other kinds: {kinds})"
        remedy = "; unpack the archives first" if _ending(paths, ARCHIVES) else ""
        return f"there is nothing to train on{kinds}{remedy}; it should hold\n{ACCEPTED}"
    folder, file = os.path.split(media[0])
    tables = [os.path.basename(path) for path in _ending(paths, TABLES)]
    more = f" (of {', '.join(tables[:3])})" if tables else ""
    if os.path.normpath(root) != parent:
        more += f"; a class named {os.path.basename(parent)} needs another name, as this is that of a split"
    return (
        f"{len(media)} images and videos are in no folder of a class, but in {folder}; move each into one, such as "
        f"{os.path.join(folder, 'CLASS', file)}, or write train_list.txt with a line "
        f"`{os.path.relpath(media[0], root)} 0` for each, its path and its class as a number from 0{more}; it should "
        f"hold\n{ACCEPTED}"
    )


def _ending(paths: Sequence[str], suffixes: tuple[str, ...]) -> list[str]:
    return [path for path in paths if path.lower().endswith(suffixes)]


def _faces(root: str) -> dict[str, Any]:
    """Return settings of a set of faces: its own verification sets, and whether images are resized."""
    own = sorted(name for name in sources.listdir(root) if name.endswith(".bin") or name == "pairs.txt")
    settings: dict[str, Any] = {"verification": own}
    name = splits.class_split(root, "train") or ""
    paths = [os.path.join(path, file) for path, files in walk(os.path.join(root, name)) for file in files]
    sizes = _sizes([path for path in paths if path.lower().endswith(images.EXTENSIONS)])
    return {**settings, "resize": True} if set(sizes) - {(ALIGNED, ALIGNED)} else settings


def _classes_of_masks(root: str) -> dict[str, Any]:
    """Return the number of classes of scenes without class names: what their masks hold; nothing for Cityscapes."""
    if sources.is_folder(os.path.join(root, "leftImg8bit")):
        return {}
    found = cityscapes.load(cityscapes.Settings(root=root, num_classes=255, void_masks=True))
    counts = [split.inventory(deep=True).counts() for split in found]
    largest = max(int(np.flatnonzero(pixels).max(initial=0)) for pixels in counts if pixels is not None)
    return {"num_classes": max(2, largest + 1)}
