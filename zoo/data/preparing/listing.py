"""The samples of the supported data sets, found as their loaders find them and in the same order."""

import csv
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.data import sources
from zoo.data.datasets import cityscapes, common, imagenet, kinetics
from zoo.data.errors import UserError, parsing
from zoo.data.fields import SettingError
from zoo.data.formats import face_files, face_packs, masks, regular
from zoo.data.formats.face_packs import FacePack
from zoo.data.formats.lists import VIDEO_EXTENSIONS, check_inside, is_number, normalize_name, read_lines, walk
from zoo.data.formats.splits import class_split
from zoo.data.packs import manifest

KINDS = ("k400", "ssv2", "imagenet", "cityscapes", "faces", "folder")
# Settings of the loaders, which options set, and their types; the last three are for clips.
CLIP_SETTINGS = {"suffix": str, "frame_template": str, "first_frame": int}
LIST_SETTINGS = {"train_list": str, "val_list": str, "names": str, "val_fraction": float, **CLIP_SETTINGS}
SSV2_FILES = {  # names of the official annotations, old and new
    "train": ("something-something-v2-train.json", "train.json"),
    "val": ("something-something-v2-validation.json", "validation.json"),
    "classes": ("something-something-v2-labels.json", "labels.json"),
}
SSV2_VIDEOS = ("20bn-something-something-v2", "videos", "")  # folders of <id>.webm
ID = re.compile(r"\w{1,100}")  # of a clip in SSv2's annotations


class Sample(NamedTuple):
    """A labeled file of a split.

    Attributes:
        label: Its class, -1 without classes.
        key: Of a record in a pack, -1 for a file of its own.
        offset: Of that record in bytes.
        frames: Number of images of a folder, -1 for a file.
    """

    split: str
    path: str
    label: int
    mask: str = ""
    key: int = -1
    offset: int = -1
    frames: int = -1
    size: int = 0

    @property
    def name(self) -> str:
        """The path, and the key in a pack."""
        return self.path if self.key < 0 else f"{self.path} key {self.key}"


class Listing(NamedTuple):
    """All samples of a data set, split after split.

    Attributes:
        media: `video`, `frames` (folders of images), `image`, `pair` or `face`.
        pattern: Template of the names of frames, and the number of the first.
        held_out: Of the validation split, as in its protocol id.
    """

    media: str
    samples: list[Sample]
    classes: tuple[str, ...]
    pattern: tuple[str, int] = ("", 0)
    held_out: str = ""


def find(kind: str, root: str, lists: dict[str, Any]) -> Listing:
    """List the samples of a data set.

    Args:
        lists: Settings of LIST_SETTINGS for the loader of the data set.
    """
    if manifest.is_prepared(root):
        raise UserError(f"{root}: is a prepared data set already; pass the folder that it was made of")
    finders = (_k400, _ssv2, _images, _cityscapes, _faces, _folder)
    try:
        return dict(zip(KINDS, finders))[kind](root, lists)
    except OSError as error:
        raise UserError(f"{error.filename or root}: cannot be listed ({error.strerror}); repair or remove it") from None


def _refuse(lists: dict[str, Any], why: str) -> None:
    for name in lists:
        raise UserError(f"--{name.replace('_', '-')}: {why}; leave it out")


def _k400(root: str, lists: dict[str, Any]) -> Listing:
    for folder in ("annotations", ""):  # as CVDF's download scripts leave them
        paths = {split: os.path.join(root, folder, f"{split}.csv") for split in common.SPLITS}
        if not lists and all(map(sources.is_file, paths.values())):
            return _k400_annotations(root, paths)
    return _clips(root, lists)


def _k400_annotations(root: str, paths: dict[str, str]) -> Listing:
    """Read the official annotations, whose clips are <split>/<id>_<start>_<end>.mp4, with or without class folders."""
    rows = {split: _csv_rows(path) for split, path in paths.items()}
    classes = tuple(sorted({row["label"] for split in rows.values() for row in split}))
    label_of = {name: label for label, name in enumerate(classes)}
    samples = []
    for split, split_rows in rows.items():
        flat = any(name.endswith(VIDEO_EXTENSIONS) for name in sources.listdir(os.path.join(root, split)))
        for row in split_rows:
            name = f"{row['youtube_id']}_{int(row['time_start']):06d}_{int(row['time_end']):06d}.mp4"
            folder = split if flat else os.path.join(split, _class_folder(root, split, row["label"]))
            samples.append(Sample(split, os.path.join(folder, name), label_of[row["label"]]))
        check_inside(paths[split], (sample.path for sample in samples), False)
    return Listing("video", samples, classes)


def _class_folder(root: str, split: str, name: str) -> str:
    """Return the folder of a class, which some copies write without blanks, quotes and brackets."""
    candidates = (name, name.replace(" ", "_"), normalize_name(name))
    return next((folder for folder in candidates if sources.is_folder(os.path.join(root, split, folder))), name)


def _csv_rows(path: str) -> list[dict[str, str]]:
    columns = ("label", "youtube_id", "time_start", "time_end")
    with parsing(f"{path}: cannot be read as CSV", "download it again"):
        reader = csv.DictReader(read_lines(path, "these annotations").values())
        if not set(columns) <= set(reader.fieldnames or ()):
            raise UserError(f"{path}: its first line should name the columns {', '.join(columns)}; download it again")
        rows = list(reader)
    for number, row in enumerate(rows, 2):
        is_complete = all(isinstance(row[column], str) and row[column] for column in columns)
        if not is_complete or not is_number(row["time_start"]) or not is_number(row["time_end"]):
            raise UserError(f"{path}:{number}: expected `label,youtube_id,time_start,time_end`; download it again")
    if not rows:
        raise UserError(f"{path}: there is no clip in this list; download it again")
    return rows


def _ssv2(root: str, lists: dict[str, Any]) -> Listing:
    paths = {}
    for key, names in SSV2_FILES.items():
        candidates = [os.path.join(folder, name) for folder in ("", "labels") for name in names]
        paths[key] = common.first_existing(root, candidates)
    if lists or not all(paths.values()):
        return _clips(root, lists)
    labels = _read_json(str(paths["classes"]), dict)
    label_of = {name: int(label) for name, label in labels.items() if is_number(str(label))}
    if sorted(label_of.values()) != list(range(len(labels))):
        raise UserError(f"{paths['classes']}: expected class names with labels from 0 on; download it again")
    folder = next((name for name in SSV2_VIDEOS if sources.is_folder(os.path.join(root, name))), "")
    samples = []
    for split in common.SPLITS:
        for number, entry in enumerate(_read_json(str(paths[split]), list)):
            template = str(entry.get("template", "")).replace("[", "").replace("]", "")
            if template not in label_of or not ID.fullmatch(str(entry.get("id", ""))):
                raise UserError(f"{paths[split]}: entry {number} has no id or no known template; download it again")
            samples.append(Sample(split, os.path.join(folder, f"{entry['id']}.webm"), label_of[template]))
    return Listing("video", samples, tuple(sorted(label_of, key=lambda name: label_of[name])))


def _read_json(path: str, kind: type) -> Any:
    with parsing(f"{path}: cannot be read as JSON", "download it again"):
        content = regular.load_json(path)
    is_wrong = isinstance(content, list) and not all(isinstance(entry, dict) for entry in content)
    if not isinstance(content, kind) or not content or is_wrong:
        raise UserError(f"{path}: not an annotation file of Something-Something V2; download it again")
    return content


def _settings(make: Callable[..., Any], root: str, lists: dict[str, Any]) -> Any:
    try:
        return make(root=root, **lists)
    except SettingError as error:
        raise UserError(f"--{error.name.replace('_', '-')}: {error.reason}") from None


def _clips(root: str, lists: dict[str, Any]) -> Listing:
    settings = _settings(kinetics.Settings, root, lists)
    splits = dict(zip(common.SPLITS, kinetics.load(settings)))
    folders = {name: split.clips[0].frames is not None for name, split in splits.items()}
    if len(set(folders.values())) > 1:
        raise UserError(f"{root}: one list names videos and the other folders of frames; prepare one kind at a time")
    samples = [
        Sample(name, clip.path, clip.label, frames=-1 if clip.frames is None else clip.frames)
        for name, split in splits.items()
        for clip in split.clips
    ]
    pattern = (settings.frame_template, settings.first_frame) if folders["train"] else ("", 0)
    media = "frames" if folders["train"] else "video"
    return Listing(media, samples, tuple(splits["train"].classes), pattern, splits["val"].held_out)


def _images(root: str, lists: dict[str, Any]) -> Listing:
    _refuse({name: lists[name] for name in CLIP_SETTINGS if name in lists}, "is for lists of clips")
    splits = imagenet.load(_settings(imagenet.Settings, root, lists))
    samples = [
        Sample(name, split.name(index), int(split.labels[index]))
        for name, split in zip(common.SPLITS, splits)
        for index in range(len(split))
    ]
    return Listing("image", samples, tuple(splits[0].classes), held_out=splits[1].held_out)


def _cityscapes(root: str, lists: dict[str, Any]) -> Listing:
    _refuse(lists, "Cityscapes has no lists")
    samples = [
        Sample(split, path, -1, cityscapes.mask_path(split, stem))
        for split in common.SPLITS
        for stem, path in cityscapes.find_images(root, split).items()
    ]
    return Listing("pair", samples, masks.TRAIN_CLASSES)


def _faces(root: str, lists: dict[str, Any]) -> Listing:
    _refuse(lists, "a set of faces has one list, label.txt")
    pack_path, list_path = os.path.join(root, "train.rec"), os.path.join(root, "label.txt")
    if sources.is_file(pack_path):
        pack = FacePack(pack_path)
        count = face_packs.read_property(pack_path) or pack.identities or 0
        samples = [
            Sample("train", "train.rec", -1, key=int(key), offset=int(offset), size=pack.pack.size // len(pack))
            for key, offset in zip(pack.keys, pack.offsets)
        ]
        return Listing("face", samples, tuple(map(str, range(count))))
    if sources.is_file(list_path):
        source = face_files.read_list(root, list_path)
        names = tuple(map(str, range(int(source.labels.max()) + 1)))
    else:
        source, names = face_files.read_identities(
            root, "train" if sources.is_folder(os.path.join(root, "train")) else ""
        )
    samples = [Sample("train", source.name(index), source.label(index)) for index in range(len(source))]
    return Listing("face", samples, names)


def _folder(root: str, lists: dict[str, Any]) -> Listing:
    for _, names in walk(os.path.join(root, class_split(root, "train") or "")):
        if any(name.lower().endswith(VIDEO_EXTENSIONS) for name in names):
            return _clips(root, lists)
    if sources.is_file(os.path.join(root, "train.list")):
        return _clips(root, lists)
    return _images(root, lists)
