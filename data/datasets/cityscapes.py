"""Cityscapes as it is unpacked, and own pictures with masks in any of the usual folders."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from data.datasets import imagenet
from data.datasets.common.segmentation import SegmentationSplit, SegmentationSettings
from data.errors import UserError
from data.formats import images, masks, palette
from data.formats.lists import read_names
from data.formats.masks import Pair

SPLITS = ("train", "val")
OWN = (("images/{}", "masks/{}"), ("{}/images", "{}/masks"))  # where own pictures and masks lie, by split
NAMED = 5  # files named in a message
LAYOUTS = """\
  leftImg8bit/{train,val}/<city>/*_leftImg8bit.png and gtFine/{train,val}/<city>/*_gtFine_labelIds.png
  or own pictures, images/{train,val}/NAME.jpg, with masks/{train,val}/NAME.png, 8-bit PNG files of class numbers
  (or {train,val}/images and {train,val}/masks, or just images and masks), and classes.txt, one name per line"""
checksum = imagenet.checksum


@dataclass(frozen=True)
class Settings(SegmentationSettings):
    """The `data:` section of a recipe on Cityscapes or on own pictures with masks."""

    root: str = "datasets/cityscapes"
    labels: Literal["labelIds", "labelTrainIds"] = "labelIds"  # which masks of Cityscapes are read
    names: str | None = None  # own data: class names, one per line; default <root>/classes.txt if there
    num_classes: int | None = None  # own data without names
    val_fraction: float = 0.1  # own data without folders train and val: every 1/val_fraction-th is for validation

    def __post_init__(self):
        super().__post_init__()
        if self.num_classes is not None and not 2 <= self.num_classes <= palette.IGNORE_INDEX:
            raise ValueError(f"num_classes: 2 to {palette.IGNORE_INDEX}, the background counted too")
        if not 0 < self.val_fraction <= 0.5:
            raise ValueError("val_fraction: a share above 0, and at most 0.5")


def load(settings: Settings) -> tuple[SegmentationSplit, SegmentationSplit]:
    """The training and the validation split, some masks of both looked at. Raises UserError naming file and remedy."""
    root = settings.root
    if not os.path.isdir(root):
        raise UserError(
            f"no data: there is no folder {root} (looked in {os.path.abspath(root)})\n"
            f"  put Cityscapes there or point to it with -o data.root=FOLDER; the folder holds\n{LAYOUTS}\n"
            "  no data at hand? the demo makes its own: python train.py -c configs/deeplabv3plus_demo.yaml --amp"
        )
    official = any(os.path.isdir(os.path.join(root, folder)) for folder in ("leftImg8bit", "gtFine"))
    splits, notes = _official(settings) if official else _target_logits(settings)
    looks = masks.scan(root, splits, settings.checked_masks, settings.void_masks)
    if official:
        classes = palette.TRAIN_CLASSES
        code = masks.cityscapes_ids() if settings.labels == "labelIds" else masks.class_indices(len(classes))
    else:
        classes = _own_classes(settings, looks)
        code = masks.class_indices(len(classes))
    notes += masks.describe(classes, looks, [masks.validate(split, code, len(classes)) for split in looks])
    train, val = splits
    return SegmentationSplit(settings, train, classes, code, True, notes), SegmentationSplit(settings, val, classes, code, False)


def _official(settings: Settings) -> tuple[list[list[Pair]], tuple[str, ...]]:
    """Pairs of Cityscapes' own layout, and what to tell about them."""
    for key in ("names", "num_classes"):
        if getattr(settings, key) is not None:
            raise UserError(f"data.{key}: is for own data, but {settings.root} holds Cityscapes, which has its classes")
    splits, notes = [], ()
    for split in SPLITS:
        folders = f"leftImg8bit/{split}", f"gtFine/{split}"
        left = _by_stem(settings.root, folders[0], ("_leftImg8bit.png",))
        fine = _by_stem(settings.root, folders[1], (f"_gtFine_{settings.labels}.png",))
        _filled(settings.root, folders[0], left, "picture *_leftImg8bit.png", "unpack leftImg8bit_trainvaltest.zip")
        alone = [left[stem] for stem in left if stem not in fine]
        if alone:
            remedy = (
                "unpack gtFine_trainvaltest.zip"
                if settings.labels == "labelIds"
                else "they are not part of the download, leave data.labels at labelIds"
            )
            raise UserError(
                f"{settings.root}: {len(alone)} of {len(left)} pictures have no mask "
                f"*_gtFine_{settings.labels}.png in {folders[1]}: {_some(alone)}; {remedy}"
            )
        if len(fine) > len(left):
            notes += (f"warning: {folders[1]} holds {len(fine) - len(left)} masks whose pictures are not there",)
        splits.append(_pairs(left, fine))
    return splits, notes


def _target_logits(settings: Settings) -> tuple[list[list[Pair]], tuple[str, ...]]:
    """Pairs of own data, and what to tell about them."""
    if settings.labels != "labelIds":
        raise UserError(f"data.labels: is for Cityscapes, but there is no leftImg8bit in {settings.root}; leave it out")
    for layout in OWN:
        if any(os.path.isdir(os.path.join(settings.root, layout[0].format(split))) for split in SPLITS):
            return [_matched(settings.root, *(folder.format(split) for folder in layout)) for split in SPLITS], ()
    if not os.path.isdir(os.path.join(settings.root, "images")):
        raise UserError(f"{settings.root}: neither Cityscapes nor own pictures are in here; it should hold\n{LAYOUTS}")
    pairs = _matched(settings.root, "images", "masks")
    period = round(1 / settings.val_fraction)
    train, val = [pair for index, pair in enumerate(pairs) if index % period], pairs[::period]
    if not train:
        raise UserError(f"{settings.root}: a single picture cannot be both for training and for validation")
    return [train, val], (
        f"no folders train and val: one in {period} of the sorted pictures is for validation, "
        f"{len(val)} of {len(pairs)} (data.val_fraction); make the folders to choose yourself",
    )


def _own_classes(settings: Settings, looks: Sequence[Sequence[masks.MaskStats]]) -> tuple[str, ...]:
    path, usual = settings.names, os.path.join(settings.root, "classes.txt")
    if path is None and os.path.isfile(usual):
        path = usual
    if path is None:
        if settings.num_classes is None:
            values = [value for value in masks.unique_values(looks) if value != palette.IGNORE_INDEX]
            raise UserError(
                f"{settings.root}: how many classes are there? The masks looked at hold the values "
                f"{', '.join(map(str, values))}; write the class names into {usual}, one per line from "
                "value 0 on, or say -o data.num_classes=K"
            )
        return tuple(f"class {label}" for label in range(settings.num_classes))
    names = read_names(path)
    if not 2 <= len(names) <= palette.IGNORE_INDEX:
        raise UserError(f"{path}: {len(names)} class names, but masks of bytes hold 2 to {palette.IGNORE_INDEX} classes")
    if settings.num_classes not in (None, len(names)):
        raise UserError(f"data.num_classes: is {settings.num_classes}, but {path} names {len(names)}; leave it out")
    return names


def _matched(root: str, image_folder: str, mask_folder: str) -> list[Pair]:
    """Pairs of two folders of own data. Raises UserError naming what has no partner."""
    left, right = _by_stem(root, image_folder, images.EXTENSIONS), _by_stem(root, mask_folder, (".png",))
    _filled(root, image_folder, left, "picture", f"it should hold files ending in {', '.join(images.EXTENSIONS)}")
    _filled(root, mask_folder, right, "mask *.png", "masks are PNG files with the names of their pictures")
    for one, other, missing in ((left, right, f"mask in {mask_folder}"), (right, left, f"image in {image_folder}")):
        alone = [one[stem] for stem in one if stem not in other]
        if alone:
            raise UserError(
                f"{root}: {len(alone)} of {len(one)} files have no {missing}: {_some(alone)}; a mask has "
                "the name of its picture, but for the ending: images/a/b.jpg, masks/a/b.png"
            )
    return _pairs(left, right)


def _by_stem(root: str, folder: str, endings: tuple[str, ...]) -> dict[str, str]:
    """Files below a folder: their path in it without the ending -> their path in the root, sorted by path."""
    found: dict[str, str] = {}
    paths = []
    for place, folders, files in os.walk(os.path.join(root, folder), followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [os.path.relpath(os.path.join(place, name), root) for name in files if not name.startswith(".")]
    for path in sorted(paths):
        ending = next((ending for ending in endings if path.lower().endswith(ending.lower())), None)
        if ending is None:
            continue
        stem = os.path.relpath(path[: -len(ending)], folder)
        if stem in found:
            raise UserError(f"{root}: {found[stem]} and {path} have the same name; a mask belongs to one picture")
        found[stem] = path
    return found


def _filled(root: str, folder: str, files: dict[str, str], what: str, remedy: str) -> None:
    if not files:
        place = os.path.join(root, folder)
        raise UserError(f"{place}: {f'no {what} in here' if os.path.isdir(place) else 'no such folder'}; {remedy}")


def _pairs(left: dict[str, str], right: dict[str, str]) -> list[Pair]:
    return [(path, right[stem]) for stem, path in left.items()]


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:NAMED]) + (" ..." if len(paths) > NAMED else "")
