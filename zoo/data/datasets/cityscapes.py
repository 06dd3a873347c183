"""Cityscapes in its official layout, and custom images with masks in any of the usual folder layouts."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from zoo.data import sources
from zoo.data.contents import Content
from zoo.data.datasets import common
from zoo.data.datasets.common import SPLITS
from zoo.data.datasets.segmentation import SegmentationSettings, SegmentationSplit
from zoo.data.errors import Option, Part, UserError, similar_path
from zoo.data.fields import Doc, FilePath, HeldOut, Range
from zoo.data.formats import exports, images, layouts, masks
from zoo.data.formats.class_names import read_names
from zoo.data.formats.lists import check_inside, class_folders, read_lines, walk
from zoo.data.formats.masks import Pair
from zoo.data.formats.splits import name_splits, split_name

if TYPE_CHECKING:
    from zoo.data.packs.prepared import PreparedSplit

# Folders of images and masks, by split; the last ones are CamVid's.
CUSTOM_LAYOUTS = (("images/{}", "masks/{}"), ("{}/images", "{}/masks"), ("{}", "{}annot"))
LISTS = ("{}.txt", "{}_list.txt", "ImageSets/Segmentation/{}.txt")  # of a split: PaddleSeg, PASCAL VOC
UNSPLIT_LAYOUTS = (("images", "masks"), ("JPEGImages", "SegmentationClass"))  # folders beside lists of names
MAX_LISTED_PATHS = 5  # in a message
LAYOUT = """\
  leftImg8bit/{train,val}/<city>/*_leftImg8bit.png and gtFine/{train,val}/<city>/*_gtFine_labelIds.png
  or custom images, images/{train,val}/NAME.jpg, with masks/{train,val}/NAME.png, 8-bit PNG files of class indices
  (or {train,val}/images and {train,val}/masks, or just images and masks, perhaps with train.txt and val.txt of lines
  `image mask` or `name`), and classes.txt, one name per line"""
describe = common.describe


@dataclass(frozen=True)
class Settings(SegmentationSettings):
    """The `data:` section of a recipe on Cityscapes or on custom images with masks."""

    root: FilePath = "datasets/cityscapes"
    allow_outside_root: Annotated[bool, Doc("Let lists of custom data name files by absolute paths or with `..`.")] = (
        False
    )
    labels: Annotated[Literal["labelIds", "labelTrainIds"], Doc("Masks of Cityscapes that are read.")] = "labelIds"
    names: Annotated[
        FilePath | None, Doc("Class names of custom data, one per line; null: <root>/classes.txt if it exists.")
    ] = None
    num_classes: Annotated[
        Annotated[int, Range(low=2, high=masks.IGNORE_INDEX)] | None,
        Doc("Number of classes of custom data without names."),
    ] = None
    val_fraction: Annotated[
        HeldOut, Doc("Fraction of custom data to hold out, by contents of images, where there is no validation split.")
    ] = 0.1


def load(settings: Settings, splits: Sequence[str] = SPLITS) -> tuple[SegmentationSplit, SegmentationSplit]:
    """Open the training and the validation split, and check some masks of both.

    Args:
        splits: ("val",) for an evaluation without a training split: its samples take the place of the others.
    """
    root = settings.root
    common.require_root(root, "Cityscapes", LAYOUT, "deeplabv3plus_demo")
    decided: dict[str, object] = {"names": settings.names, "num_classes": settings.num_classes}
    prepared = common.prepared_splits(settings, "pair", decided)
    if prepared:
        return _open_prepared(settings, prepared)
    is_cityscapes = any(sources.is_folder(os.path.join(root, folder)) for folder in ("leftImg8bit", "gtFine"))
    notes: list[str] = []
    if is_cityscapes:
        pairs, is_divided = _cityscapes_pairs(settings, splits, notes), False
    else:
        pairs, is_divided = _custom_pairs(settings, splits, notes)
    stats = masks.scan(root, pairs, settings.checked_masks, settings.void_masks)
    if is_cityscapes:
        classes = masks.TRAIN_CLASSES
        label_map = _label_map(settings)
    else:
        classes = _custom_classes(settings, stats)
        label_map = masks.class_indices(len(classes))
    turned = [one.path for split_stats in stats for one in split_stats if one.turned]
    if turned:
        notes.append(
            f"warning: {len(turned)} of the pairs that were looked at have an EXIF orientation, such as {turned[0]} or "
            "its image; it is ignored, and pixels are paired as they are stored"
        )
    pixels = [masks.validate(split_stats, label_map, len(classes)) for split_stats in stats]
    train = SegmentationSplit(
        settings, pairs[0], classes, label_map, True, tuple(notes), pixels=pixels[0], looked_at=len(stats[0])
    )
    val = SegmentationSplit(settings, pairs[-1], classes, label_map, False, pixels=pixels[-1], looked_at=len(stats[-1]))
    val.held_out = common.held_out(settings) if is_divided else ""
    return train, val


def _label_map(settings: Settings) -> masks.LabelMap:
    if settings.labels == "labelIds":
        return masks.cityscapes_ids()
    return masks.class_indices(len(masks.TRAIN_CLASSES))


def _open_prepared(
    settings: Settings, prepared: "tuple[PreparedSplit, PreparedSplit]"
) -> tuple[SegmentationSplit, SegmentationSplit]:
    """Open Cityscapes as zoo data prepare has prepared it, which has checked all files."""
    pairs = [[(split.name(index), split.mask_name(index)) for index in range(len(split))] for split in prepared]
    classes = masks.TRAIN_CLASSES
    for path in (pairs[0][0][1], pairs[1][0][1]):
        if not path.endswith(f"_{settings.labels}.png"):
            raise UserError(f"data.labels: {settings.root} was prepared with masks such as {path}; leave it out")
    train, val = (
        SegmentationSplit(settings, of_split, classes, _label_map(settings), training, (), split)
        for split, of_split, training in zip(prepared, pairs, (True, False))
    )
    return train, val


def _cityscapes_pairs(settings: Settings, splits: Sequence[str], notes: list[str]) -> list[list[Pair]]:
    for key in ("names", "num_classes"):
        if getattr(settings, key) is not None:
            raise UserError(
                f"data.{key}: is for custom data, but {settings.root} contains Cityscapes, whose classes are fixed; "
                "leave it out"
            )
    remedy = (
        "unpack gtFine_trainvaltest.zip"
        if settings.labels == "labelIds"
        else "they are not part of the download, leave data.labels at labelIds"
    )
    pairs = list[list[Pair]]()
    for split in splits:
        folder, end = f"gtFine/{split}", f"_gtFine_{settings.labels}.png"
        found = find_images(settings.root, split), _files_by_stem(settings.root, folder, (end,))
        pairs.append(_match(settings.root, *found, f"mask *{end}", folder, remedy, notes))
    return pairs


def find_images(root: str, split: str) -> dict[str, str]:
    """Find the images of a split of Cityscapes.

    Returns:
        `city/name` of an image -> its path relative to root.
    """
    folder, end = f"leftImg8bit/{split}", "_leftImg8bit.png"
    paths = _files_by_stem(root, folder, (end,))
    _require_files(root, folder, paths, f"image *{end}", "unpack leftImg8bit_trainvaltest.zip")
    return paths


def mask_path(split: str, stem: str) -> str:
    """Return the path of the mask of ids of an image of find_images, relative to root."""
    return f"gtFine/{split}/{stem}_gtFine_labelIds.png"


def _custom_pairs(settings: Settings, splits: Sequence[str], notes: list[str]) -> tuple[list[list[Pair]], bool]:
    """Return the pairs of the splits of custom data, and whether the last one was held out of the first.

    notes: receives messages for the user.
    """
    root = settings.root
    if settings.labels != "labelIds":
        raise UserError(f"data.labels: is for Cityscapes, but there is no leftImg8bit in {root}; leave it out")
    lists = {split: common.first_existing(root, [name.format(split) for name in LISTS]) for split in splits}
    if all(lists.values()):
        return [_listed_pairs(settings, str(path), notes) for path in lists.values()], False
    unread = [f"warning: {path} is not read: the other split has no list" for path in lists.values() if path]
    folders = _unsplit_folders(root)
    for of_images, of_masks in filter(None, (find_layout(root, bool(lists.get("train"))), *CUSTOM_LAYOUTS)):
        if "{}" not in of_images:
            folders = of_images, of_masks
            break
        layout = of_images if "/" in of_images else of_masks  # train and val alone say nothing
        names = {split: split_name(root, split, layout, of_images, of_masks) for split in SPLITS}
        if names["val"]:
            notes += [*unread, *name_splits(names)]
            found = [names[split] or split for split in splits]
            return [_match_folders(root, of_images.format(name), of_masks.format(name), notes) for name in found], False
        if names["train"]:
            folders = of_images.format(names["train"]), of_masks.format(names["train"])
            break
    if sources.is_folder(os.path.join(root, folders[0])):
        notes += unread
        pairs = _match_folders(root, *folders, notes)
    elif lists.get("train"):
        pairs = _listed_pairs(settings, str(lists["train"]), notes)
    else:
        raise UserError(
            f"{root}: contains neither Cityscapes nor custom images", *_hint(root), f"; it should contain\n{LAYOUT}"
        )
    files = [(Content(os.path.join(root, image)),) for image, _ in pairs]  # copies may have other masks
    return list(common.divide(settings, pairs, files, [0] * len(pairs), notes).values()), True


def _hint(root: str) -> tuple[Part, ...]:
    """Return what a folder without scenes holds, or what may have been meant."""
    if labels := exports.recognize(root):
        return (f", but {labels}",)
    for folder in (os.path.join(root, name) for name in class_folders(root, "")):
        if find_layout(folder) or sources.is_folder(os.path.join(folder, "leftImg8bit")):
            return "; did you mean ", Option("data.root", folder), "?"
    return (similar_path(os.path.join(root, "images")) or similar_path(os.path.join(root, "leftImg8bit")),)


def find_layout(root: str, is_listed: bool = False) -> tuple[str, str] | None:
    """Return the folders of images and masks, with {} for the split where there are splits; None if nothing is certain.

    is_listed: whether there is a list of pairs, which need no such folders.
    """
    for folders in (*CUSTOM_LAYOUTS, *UNSPLIT_LAYOUTS):
        names = [split_name(root, split, folders[0], *folders) or split for split in SPLITS]
        if any(all(sources.is_folder(os.path.join(root, layout.format(name))) for layout in folders) for name in names):
            return folders
    return None if is_listed else layouts.scene_folders(root)


def _unsplit_folders(root: str) -> tuple[str, str]:
    return next(
        (names for names in UNSPLIT_LAYOUTS if sources.is_folder(os.path.join(root, names[0]))), UNSPLIT_LAYOUTS[0]
    )


def _listed_pairs(settings: Settings, path: str, notes: list[str]) -> list[Pair]:
    """Return the pairs of a list, whose lines are `image mask`, or the name of both. Raises UserError naming a line."""
    root = settings.root
    of_images, of_masks = _unsplit_folders(root)
    by_stem: tuple[dict[str, str], dict[str, str]] | None = None
    pairs = []
    for number, line in read_lines(path, "this list").items():
        words = re.split(r"\s*\t\s*", line) if "\t" in line else line.split()  # blanks belong to names beside a tab
        pair = (words[0], words[-1])
        if len(words) == 1:
            by_stem = by_stem or (
                _files_by_stem(root, of_images, images.EXTENSIONS),
                _files_by_stem(root, of_masks, (".png",)),
            )
            stem = os.path.splitext(line)[0] if line.lower().endswith(images.EXTENSIONS) else line
            pair = by_stem[0].get(stem, f"{of_images}/{stem}"), by_stem[1].get(stem, f"{of_masks}/{stem}.png")
        check_inside(path, pair, settings.allow_outside_root)
        missing = [name for name in pair if not sources.is_file(os.path.join(root, name))]
        if missing or len(words) > 2:
            expected = "expected `image mask`, with a tab between them if names have blanks"
            reason = expected if len(words) > 2 else f"there is no {missing[0]} in {root}"
            raise UserError(f"{path}:{number}: {reason}; correct this line, or remove the lists to use folders")
        pairs.append(pair)
    if not pairs:
        raise UserError(f"{path}: the list is empty; a line reads `image mask`, both relative to {root}, or a name")
    if len(pairs) > len(set(pairs)):
        notes.append(f"warning: {path}: {len(pairs) - len(set(pairs))} lines repeat an earlier one; each counts")
    return pairs


def _custom_classes(settings: Settings, stats: Sequence[Sequence[masks.MaskStats]]) -> tuple[str, ...]:
    """Return the class names of custom data, `class 0` ... where only their number is known."""
    default = os.path.join(settings.root, "classes.txt")
    path = common.given_or_first(settings.root, "data.names", settings.names, ["classes.txt"])
    if path is None:
        if settings.num_classes is None:
            found = [one.counts for of_split in stats for one in of_split]
            values = [value for value in range(masks.IGNORE_INDEX) if any(counts[value] for counts in found)]
            raise UserError(
                f"{settings.root}: the number of classes is unknown. The checked masks contain the values "
                f"{', '.join(map(str, values))}; write the class names into {default}, one per line from "
                "value 0 on, or set ",
                Option("data.num_classes", "K"),
            )
        return tuple(f"class {label}" for label in range(settings.num_classes))
    names = read_names(path)
    if not 2 <= len(names) <= masks.IGNORE_INDEX:
        raise UserError(
            f"{path}: {len(names)} class names, but 8-bit masks hold 2 to {masks.IGNORE_INDEX} classes; "
            "name one class per mask value"
        )
    if settings.num_classes not in (None, len(names)):
        raise UserError(f"data.num_classes: is {settings.num_classes}, but {path} names {len(names)}; leave it out")
    return names


def _match_folders(root: str, image_folder: str, mask_folder: str, notes: list[str]) -> list[Pair]:
    """Pair the images and masks of two folders of custom data. Raises UserError naming images without a mask."""
    image_paths = _files_by_stem(root, image_folder, images.EXTENSIONS)
    mask_paths = _files_by_stem(root, mask_folder, (".png",))
    if image_folder == mask_folder:
        mask_paths = {stem: path for stem, path in mask_paths.items() if layouts.MASK_SUFFIX.search(stem)}
        image_paths = {stem: path for stem, path in image_paths.items() if stem not in mask_paths}
    extensions = ", ".join(images.EXTENSIONS)
    _require_files(root, image_folder, image_paths, "image", f"it should contain files ending in {extensions}")
    _require_files(root, mask_folder, mask_paths, "mask *.png", "masks are PNG files with the names of their images")
    remedy = "a mask has the name of its image except for the extension: images/a/b.jpg, masks/a/b.png"
    if image_paths.keys() - mask_paths.keys() and not layouts.unmatched([*image_paths], [*mask_paths]):
        image_paths = dict(zip(layouts.bare([*image_paths]), image_paths.values()))
        mask_paths = dict(zip(layouts.bare([*mask_paths]), mask_paths.values()))
    return _match(root, image_paths, mask_paths, "mask", mask_folder, remedy, notes)


def _match(
    root: str,
    image_paths: dict[str, str],
    mask_paths: dict[str, str],
    mask: str,
    folder: str,
    remedy: str,
    notes: list[str],
) -> list[Pair]:
    """Pair images and masks by their names without suffix, and add a note on masks without an image."""
    lacking = [stem for stem in image_paths if stem not in mask_paths]
    if lacking:
        first = ", ".join(image_paths[stem] for stem in lacking[:MAX_LISTED_PATHS])
        more = " ..." if len(lacking) > MAX_LISTED_PATHS else ""
        place = os.path.dirname(os.path.join(root, folder, lacking[0]))
        missing = "" if sources.is_folder(place) else f"; there is no folder {place}{similar_path(place)}"
        raise UserError(
            f"{root}: {len(lacking)} of {len(image_paths)} images have no {mask} in {folder}: {first}{more}; {remedy}"
            + missing
        )
    extra = len(mask_paths) - len(image_paths)
    if extra:
        notes.append(f"warning: {folder} contains {extra} masks without an image")
    return [(path, mask_paths[stem]) for stem, path in image_paths.items()]


def _files_by_stem(root: str, folder: str, suffixes: tuple[str, ...]) -> dict[str, str]:
    """Find the files below a folder that end in one of the suffixes, sorted by path.

    Returns:
        Path relative to the folder, without the suffix -> path relative to root.
    """
    paths = []
    for parent, names in walk(os.path.join(root, folder)):
        paths += [os.path.relpath(os.path.join(parent, name), root) for name in names]
    by_stem: dict[str, str] = {}
    for path in sorted(paths):
        suffix = next((suffix for suffix in suffixes if path.lower().endswith(suffix.lower())), None)
        if suffix is None:
            continue
        stem = os.path.relpath(path[: -len(suffix)], folder)
        if stem in by_stem:
            raise UserError(
                f"{root}: {by_stem[stem]} and {path} have the same name, but a mask belongs to one image; rename one"
            )
        by_stem[stem] = path
    return by_stem


def _require_files(root: str, folder: str, paths: dict[str, str], what: str, remedy: str) -> None:
    if not paths:
        path = os.path.join(root, folder)
        if sources.is_folder(path):
            raise UserError(f"{path}: there is no {what} in this folder; {remedy}")
        raise UserError(f"{path}: no such folder; {remedy}{similar_path(path)}")
