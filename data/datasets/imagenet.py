"""ImageNet and every set of labelled pictures shaped like it: a folder per class, or lists."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.batch import IMAGENET_MEAN, IMAGENET_STD, LABEL, Field
from data.errors import UserError
from data.formats import images
from data.formats.lists import (
    WNID,
    ClassNames,
    LabeledPath,
    class_folders,
    class_names_from_folders,
    read_classes,
    read_folders,
    read_list,
)
from data.stream import LoaderSettings
from data.transforms.crops import random_box

LISTS = ("{}_list.txt", "{}.txt", "{}.list")  # where they are looked for in the root: PaddleClas's, Caffe's, ours
NAMES = ("classes.txt", "synset_words.txt", "imagenet_class_index.json")


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on ImageNet or a set shaped like it."""

    root: str = "datasets/imagenet"
    train_list: str | None = None  # default <root>/train_list.txt; without it, folders <root>/train/<class>/
    val_list: str | None = None  # default <root>/val_list.txt; without it, folders <root>/val/<class>/
    names: str | None = None  # classes by label, as text or JSON; default <root>/classes.txt if there
    size: int = 224  # pixels, square
    scale: tuple[float, float] = (0.08, 1.0)  # of the random crop: its share of the area ...
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # ... and its width by its height
    flip: bool = True  # mirror half of the training pictures
    reduce: bool = True  # in training, decode large JPEG files at 1/2 to 1/8 where that loses nothing
    eval_size: int | None = None  # of the central crop in an evaluation; default size
    eval_resize: int | None = None  # the shorter side before that crop; default 256 for 224, in proportion
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __post_init__(self):
        super().__post_init__()
        for key in ("size", "eval_size"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError("scale: two shares of the area, the smaller one first, in (0, 1]")
        if not 0 < self.ratio[0] <= self.ratio[1] < float("inf"):
            raise ValueError("ratio: two proportions above 0, the smaller one first")
        if min(self.std) <= 0:
            raise ValueError("std: must be above 0")
        if self.eval_resize is not None and self.eval_resize < self.crop:
            raise ValueError(f"eval_resize: must be at least {self.crop}, the size of the crop")

    @property
    def crop(self) -> int:
        """Side of the crop in an evaluation."""
        return self.eval_size or self.size

    @property
    def short_side(self) -> int:
        """The shorter side in an evaluation, before the crop."""
        return self.eval_resize or self.crop * 256 // 224


class ImageSplit:
    """One split. Stateless between samples, so threads and processes may share or copy it.

    fields: `image` uint8 (size, size, 3), `label` int64 ().
    """

    views = 1
    notes = ()

    def __init__(self, settings: Settings, clips: Sequence[LabeledPath], classes: tuple[str, ...], training: bool):
        self.settings, self.classes, self.training = settings, classes, training
        # Arrays: every reader process gets a copy, and a million small objects travel slowly.
        self.paths = np.array([os.fsencode(clip.path) for clip in clips])
        self.labels = np.array([clip.label for clip in clips], np.int64)
        size = settings.size if training else settings.crop
        image = Field("image", (size, size, 3), "uint8", settings.mean, settings.std)
        self.fields = (image, LABEL)

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self.paths[index]))

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode, crop, resize and (in training) mirror one picture. Raises BadSample."""
        s, path = self.settings, os.path.join(self.settings.root, self.name(index))
        if self.training:
            image = images.decode_crop(path, lambda w, h: random_box(w, h, s.scale, s.ratio, rng), s.size, s.reduce)
            if s.flip and rng.random() < 0.5:
                image = np.ascontiguousarray(image[:, ::-1])
        else:
            image = images.decode_center(path, s.short_side, s.crop)
        return {"image": image, "label": np.asarray(self.labels[index])}

    def describe_files(self) -> list[str]:
        """One line per sample, `path label size`, the size in bytes (-1 if missing)."""
        lines = []
        for index, label in enumerate(self.labels):
            name = self.name(index)
            try:
                size = os.stat(os.path.join(self.settings.root, name)).st_size
            except OSError:
                size = -1
            lines.append(f"{name} {label} {size}")
        return lines


def load(settings: Settings) -> tuple[ImageSplit, ImageSplit]:
    """The training and the validation split. Raises UserError naming the folder, list or line and the remedy."""
    root = settings.root
    if not os.path.isdir(root):
        raise UserError(
            f"no data: there is no folder {root} (looked in {os.path.abspath(root)})\n"
            "  put your pictures there or point to them with -o data.root=FOLDER; the folder holds either\n"
            "  train/<class>/*.JPEG and val/<class>/*.JPEG\n"
            "  or train_list.txt and val_list.txt (lines `relative/path.JPEG label`), or one of each kind\n"
            "  no data at hand? the demo makes its own: python train.py -c configs/resnet50_demo.yaml --amp"
        )
    lists = {split: _list_of(settings, split) for split in ("train", "val")}
    known, order = _classes(settings, [split for split in lists if not lists[split]])
    splits = {
        split: _listed(settings, split, path) if path else _tree(settings, split, order)
        for split, path in lists.items()
    }
    names = known.names if known else order or class_names_from_folders(splits["train"] + splits["val"])
    for split, path in lists.items():
        if path:
            _check_labels(path, splits[split], names, order)
    return ImageSplit(settings, splits["train"], names, True), ImageSplit(settings, splits["val"], names, False)


def checksum(train: ImageSplit, val: ImageSplit) -> str:
    """md5 over path, label and size of every sample of both splits: changes when any file is replaced or missing."""
    digest = hashlib.md5()
    for split in (train, val):
        digest.update("\n".join(split.describe_files() + ["", ""]).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _list_of(settings: Settings, split: str) -> str | None:
    return getattr(settings, f"{split}_list") or _first_there(settings.root, [name.format(split) for name in LISTS])


def _first_there(root: str, names: Sequence[str]) -> str | None:
    return next((path for path in (os.path.join(root, name) for name in names) if os.path.isfile(path)), None)


def _classes(settings: Settings, trees: Sequence[str]) -> tuple[ClassNames | None, tuple[str, ...]]:
    """What the file of names says, if there is one, and the folder of every label (() if nothing tells)."""
    folders = sorted({folder for split in trees for folder in class_folders(settings.root, split)})
    path = settings.names or _first_there(settings.root, NAMES)
    if path is None:
        return None, tuple(folders)
    known = read_classes(path)
    if folders and all(WNID.match(folder) for folder in folders) and not set(folders) & set(known.folders):
        # Names alone, as in PaddleClas's label list. ImageNet's labels are the sorted ids, if all of them are there.
        if len(folders) != len(known.names):
            raise UserError(
                f"{path} names {len(known.names)} classes without their ids, but there are {len(folders)} "
                f"folders such as {folders[0]}; give a file that holds the ids too, with lines "
                '`n01440764 tench` or JSON {"0": ["n01440764", "tench"], ...}'
            )
        return known, tuple(folders)
    return known, known.folders


def _tree(settings: Settings, split: str, order: tuple[str, ...]) -> list[LabeledPath]:
    folders = class_folders(settings.root, split)
    if not folders:
        raise UserError(_no_folders(settings.root, split))
    clips = read_folders(settings.root, split, order, images.EXTENSIONS)
    filled = {clip.path.split(os.sep)[1] for clip in clips}
    for folder in folders:
        if folder not in filled:
            raise UserError(
                f"{os.path.join(settings.root, split, folder)}: there is no picture in this folder (a file "
                f"ending in {', '.join(images.EXTENSIONS)}); fill or remove it"
            )
    return clips


def _no_folders(root: str, split: str) -> str:
    """Why no class folder was found in a split that has no list."""
    folder, lists = os.path.join(root, split), f"{split}_list.txt"
    remedy = f"put {lists} (lines `relative/path.JPEG label`) into {root}, name one with -o data.{split}_list=FILE"
    if not os.path.isdir(folder):
        return f"{root}: neither {lists} nor a folder {split}/ is there; {remedy} or make {split}/<class>/ folders"
    files = [entry.name for entry in os.scandir(folder) if entry.is_file() and not entry.name.startswith(".")]
    loose = sum(name.lower().endswith(images.EXTENSIONS) for name in files)
    if loose:
        return (
            f"{folder}: {loose} pictures lie here without class folders, and no list tells their labels; {remedy}, "
            f"or move the pictures into {split}/<class>/ folders"
        )
    packed = sum(name.endswith((".tar", ".tgz", ".gz", ".zip")) for name in files)
    if packed:
        return f"{folder}: {packed} archives, but no class folders; unpack each into {split}/<class>/"
    return f"{folder}: there is no class folder in here; {remedy} or make {split}/<class>/ folders"


def _listed(settings: Settings, split: str, path: str) -> list[LabeledPath]:
    clips = read_list(path, folders=False)
    head = [clip.path for clip in clips[:20]]
    for below in ("", split):  # Caffe's val.txt counts from val/
        if any(os.path.isfile(os.path.join(settings.root, below, name)) for name in head):
            return [LabeledPath(os.path.join(below, clip.path), clip.label) for clip in clips] if below else clips
    raise UserError(
        f"{path}: not one of its first {len(head)} paths exists, for example "
        f"{os.path.join(settings.root, head[0])}; paths are relative to data.root or to its {split}/"
    )


def _check_labels(path: str, clips: Sequence[LabeledPath], names: Sequence[str], order: Sequence[str]) -> None:
    by_folder = {folder: label for label, folder in enumerate(order)}
    for clip in clips:
        if clip.label >= len(names):
            raise UserError(
                f"{path}: {clip.path} has label {clip.label}, but there are only {len(names)} classes "
                f"(0 to {len(names) - 1}); labels count from 0"
            )
        folder = os.path.basename(os.path.dirname(clip.path))
        if by_folder.get(folder, clip.label) != clip.label:
            raise UserError(
                f"{path}: {clip.path} has label {clip.label}, but the folder {folder} is class "
                f"{by_folder[folder]} of {len(names)}; give the classes in the order of their labels with "
                "-o data.names=FILE"
            )
