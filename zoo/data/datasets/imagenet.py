"""ImageNet and every data set of labeled images in the same layout: one folder per class, or lists."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import numpy as np

from zoo.data import mixing, sources
from zoo.data.audit import Inventory
from zoo.data.augment import Drawn, Target, steps
from zoo.data.augment.steps import Steps, on_image, standard
from zoo.data.batch import IMAGENET_MEAN, IMAGENET_STD, LABEL, Field
from zoo.data.contents import Content
from zoo.data.dataset import LoaderSettings, Pending, PlannedSample
from zoo.data.datasets import common
from zoo.data.datasets.common import SPLITS, Protocol, set_name
from zoo.data.errors import Option, UserError, similar_path
from zoo.data.fields import Count, Doc, FilePath, Fractions, Ratios, SettingError, Word
from zoo.data.formats import images, label_tables, layouts, table_rows, webdataset
from zoo.data.formats.class_names import WNID, ClassNames, read_classes
from zoo.data.formats.lists import (
    ANIMATIONS,
    LabeledPath,
    check_inside,
    check_same_labels,
    class_folders,
    class_names_from_folders,
    is_number,
    read_folders,
    read_list,
    walk,
)
from zoo.data.formats.splits import splits_below
from zoo.data.transforms import pixels
from zoo.data.transforms.clips import center_box
from zoo.data.transforms.geometry import Geometry, Size, short_side_size

if TYPE_CHECKING:
    from zoo.data.packs.prepared import PreparedSplit

CLASS_FILES = ("classes.txt", "synset_words.txt", "imagenet_class_index.json")
OFFICIAL_SETS = {1000: "imagenet"}  # by number of classes
LAYOUT = """\
  either train/<class>/*.JPEG and val/<class>/*.JPEG
  or train_list.txt and val_list.txt (lines `relative/path.JPEG label`), or one of each type,
  or, with data.val_fraction=0.2, no validation split: <class>/*.JPEG, train/<class>/*.JPEG or train_list.txt"""
describe = common.describe


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on ImageNet or a data set in the same layout."""

    root: Annotated[FilePath, Doc("Folder of the data set, archives, or an address.")] = "datasets/imagenet"
    train_list: Annotated[
        FilePath | None,
        Doc(
            "List of training images, in the current folder or root; null: <root>/train_list.txt, or folders of "
            "classes."
        ),
    ] = None
    val_list: Annotated[
        FilePath | None,
        Doc(
            "List of validation images, in the current folder or root; null: <root>/val_list.txt, or folders of "
            "classes."
        ),
    ] = None
    val_fraction: common.ValFraction = None
    allow_outside_root: Annotated[bool, Doc("Let lists name files by absolute paths or with `..`.")] = False
    set: Annotated[
        Word | None, Doc("Name of the set in the protocol id; null: imagenet for 1000 classes, else that of root.")
    ] = None
    names: Annotated[
        FilePath | None, Doc("Class names by label, as text or JSON; null: <root>/classes.txt if it exists.")
    ] = None
    size: Annotated[Count, Doc("Side of the square images, in pixels.")] = 224
    scale: Annotated[Fractions, Doc("Area of the random crop, as a fraction of the image.")] = (0.08, 1.0)
    ratio: Annotated[Ratios, Doc("Aspect ratio of the random crop, width by height.")] = (3 / 4, 4 / 3)
    balance: common.Balance = 0.0
    flip: Annotated[bool, Doc("Mirror half of the training images.")] = True
    augment: Annotated[Steps | None, Doc("Augmentations in place of crop and flip (docs/data.md); null: these.")] = None
    antialias: Annotated[bool, Doc("Resize by Pillow's antialiased filter (torchvision), not OpenCV's.")] = True
    resample: common.Resample = "fast"
    reduce: Annotated[bool, Doc("In training, decode large JPEG files at 1/2 to 1/8 where that loses nothing.")] = True
    eval_size: Annotated[Count | None, Doc("Side of the center crop in an evaluation, in pixels; null: size.")] = None
    eval_resize: Annotated[
        int | None, Doc("Shorter side before the center crop, in pixels; null: 256 for 224, in proportion.")
    ] = None
    levels: common.Levels = None
    mean: common.Mean = IMAGENET_MEAN
    std: common.Std = IMAGENET_STD

    def __post_init__(self):
        super().__post_init__()
        steps.check(self.augment, "image", self.flip, (self.size, self.size))
        common.check_levels(self.levels)
        if self.reduce and not self.antialias:
            raise SettingError(
                "reduce", "averages pixels as antialias=true does; set reduce=false with antialias=false"
            )
        if self.eval_resize is not None and self.eval_resize < self.eval_crop:
            raise SettingError("eval_resize", f"must be at least {self.eval_crop}, the size of the crop")

    @property
    def eval_crop(self) -> int:
        """Side of the center crop in an evaluation."""
        return self.eval_size or self.size

    @property
    def short_side(self) -> int:
        """Shorter side of an image in an evaluation, before the crop."""
        return self.eval_resize or self.eval_crop * 256 // 224


class ImageSplit(common.FileSplit):
    """One split.

    Fields: `image` uint8 (size, size, 3), `label` int64 (); in training with data.mixup or data.cutmix, which the
    stream carries out, `soft_label` float32 (classes,) too.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Sequence[LabeledPath],
        classes: tuple[str, ...],
        training: bool,
        prepared: "PreparedSplit | None" = None,
    ):
        # Arrays, because every worker process gets a copy and a million small objects are slow to pickle.
        self.paths = np.array([os.fsencode(entry.path) for entry in paths])
        self.labels = np.array([entry.label for entry in paths], np.int64)
        crop = {"scale": settings.scale, "ratio": settings.ratio}
        steps = standard(random_resized_crop=crop, horizontal_flip=settings.flip)
        super().__init__(settings, classes, steps, training, prepared)
        self.balance_classes(self.labels)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def protocol(self) -> Protocol:
        """The evaluation: side of the center crop, and shorter side before it."""
        s = self.settings
        name = set_name(s, len(self.classes), OFFICIAL_SETS) + self.held_out
        return Protocol(name, f"{s.eval_crop}-of-{s.short_side}{common.levels_text(s.levels)}")

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self.paths[index]))

    def item_label(self, index: int) -> str:
        return str(self.classes[self.labels[index]])

    def target(self, index: int) -> np.ndarray:
        """Return the field `label` of a sample."""
        return np.asarray(self.labels[index])

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode, crop, resize and (in training) augment one image. Raises BadSample."""
        encoded = self._read(index)
        geometry, drawn = self._draw(encoded.size, rng)
        image = images.decode(encoded, geometry, self.training and self.settings.reduce)
        return {"image": on_image(image, drawn), "label": self.target(index)}

    def from_pixels(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image of the sample that a decoded image, uint8 RGB (H, W, 3), gives in an evaluation."""
        geometry, _ = self._draw((image.shape[1], image.shape[0]), rng)
        return pixels.apply(image, geometry)

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one sample as `sample` does, and leave its pixels to the loader. Raises BadSample."""
        if self.training and not self.pipeline.is_geometric:
            return {**self.sample(index, rng)}
        encoded = self._read(index)
        geometry, _ = self._draw(encoded.size, rng)
        reduce = self.training and self.settings.reduce
        image: np.ndarray | Pending = Pending((encoded.content,), geometry)
        if not encoded.is_ordinary or (reduce and images.jpeg_scale(encoded, geometry) > 1):
            image = images.decode(encoded, geometry, reduce)
        return {"image": image, "label": self.target(index)}

    def inventory(self, deep: bool) -> Inventory:
        """Return what the split holds, for checks; deep: no difference here."""
        files = len(self), self.name, self.classes, self.file_size, self.digest
        return Inventory(*files, labels=self.labels, remark=self.remark)

    def remark(self, index: int, _rng: np.random.Generator | None = None) -> str:
        """Return what of an image is left out or lost; "" for nothing. Raises BadSample."""
        return images.remark(self._read(index))

    def show(self, training: bool) -> None:
        s, classes = self.settings, len(self.classes)
        size = s.size if training else s.eval_crop
        image = Field("image", (size, size, 3), "uint8", s.mean, s.std)
        self.fields = (image, LABEL, *(mixing.fields(s, classes) if training else ()))
        super().show(training)

    def _read(self, index: int) -> images.EncodedImage:
        if self.prepared:
            return images.parse(self.prepared.content(index))
        return images.read(self.local(self.path(index)), self.settings.levels)

    def _draw(self, size: Size, rng: np.random.Generator) -> tuple[Geometry, list[Drawn]]:
        """Draw the geometry of an image whose upright size is given, and what else happens to its pixels.

        In an evaluation, the geometry is the center.
        """
        s = self.settings
        if self.training:
            return self.pipeline.draw_crop(size, Target(s.size, s.size, s.mean, s.std), rng)
        resized = short_side_size(size, s.short_side)
        return Geometry(None, resized, s.antialias, center_box(*resized, s.eval_crop)), []


def load(settings: Settings, splits: Sequence[str] = SPLITS) -> tuple[ImageSplit, ImageSplit]:
    """Open the training and the validation split.

    Args:
        splits: ("val",) for an evaluation without a training split: its samples take the place of the others.
    """
    common.require_root(settings.root, "your images", LAYOUT, "resnet50_demo")
    decided = {key: getattr(settings, key) for key in ("train_list", "val_list", "names")}
    prepared = common.prepared_splits(settings, "image", decided)
    if prepared:
        return ImageSplit.open_prepared(settings, prepared)
    notes = list[str]()
    lists = common.find_lists(settings, splits, common.LIST_FILES, notes)
    is_divided = common.lacks_validation(settings, lists["val"])
    if is_divided:
        lists = {"train": common.find_list(settings, "train", common.LIST_FILES)}
    beside = {split: _read_beside(settings, split) for split in lists if not lists[split]}
    class_names, folders = _class_names(settings, [split for split, labeled in beside.items() if not labeled])
    given = {split: path for split, path in lists.items() if path}
    tables = {
        (split, path): label_tables.read(path, settings.root, notes, split)
        for split, path in given.items()
        if table_rows.is_table(path)
    }
    numbered = dict[str, list[LabeledPath]]()
    if tables:
        class_names, numbered = label_tables.number(tables, class_names)
        for split, entries in numbered.items():
            check_inside(given[split], (entry.path for entry in entries), settings.allow_outside_root)
        folders = class_names.folders if class_names else folders
    listed = {split: numbered.get(split) or _read_list(settings, split, path, notes) for split, path in given.items()}
    listed |= {split: labeled for split, labeled in beside.items() if labeled}
    for split, entries in listed.items() if class_names is None else ():
        folders = _in_label_order(folders, lists[split] or settings.root, entries)
    check_same_labels(listed.values())
    found = {split: listed.get(split) or _read_folders(settings, split, folders, notes) for split in lists}
    if "train" in found and not lists["train"]:
        paths = [entry.path for entry in found["train"]]
        notes += [*layouts.notes(settings.root, paths), *_animations(settings.root, paths)]
    names = class_names.names if class_names else folders or class_names_from_folders([*chain(*found.values())])
    for split, path in lists.items():
        if split in listed:
            _check_labels(path or settings.root, found[split], names, folders)
        else:
            common.check_label(settings.root, max(found[split], key=lambda entry: entry.label), len(names))
    if is_divided:
        files = [(Content(os.path.join(settings.root, entry.path)),) for entry in found["train"]]
        found = common.divide(settings, found["train"], files, [entry.label for entry in found["train"]], notes)
    train, val = (ImageSplit(settings, found.get(split, found["val"]), names, split == "train") for split in SPLITS)
    train.notes += tuple(notes)
    val.held_out = common.held_out(settings) if is_divided else ""
    return train, val


def _animations(root: str, paths: Sequence[str]) -> list[str]:
    gifs = [os.path.join(root, path) for path in paths if path.lower().endswith(ANIMATIONS)]
    count, looked_at = layouts.count_animations(gifs)
    line = f"warning: {count} of {looked_at} GIF files are animations, and only their first frames are read"
    return [f"{line}; for clips, set data.name=kinetics"] * bool(count)


def _class_names(settings: Settings, splits: Sequence[str]) -> tuple[ClassNames | None, tuple[str, ...]]:
    """Read the class names.

    Args:
        splits: Those that have class folders instead of a list.

    Returns:
        The content of the class file (None without one), and the folder name of every label (() if unknown).
    """
    parents = [common.class_root(settings, split) for split in splits]
    folders = sorted({folder for parent in parents for folder in class_folders(settings.root, parent)})
    path = common.given_or_first(settings.root, "data.names", settings.names, CLASS_FILES)
    if path is None:
        return None, tuple(folders)
    class_names = read_classes(path)
    if folders and all(WNID.match(folder) for folder in folders) and not set(folders) & set(class_names.folders):
        # Names without ids, as in PaddleClas's label list. ImageNet's labels are the sorted ids, if all ids exist.
        if len(folders) != len(class_names.names):
            raise UserError(
                f"{path} names {len(class_names.names)} classes without their ids, but there are {len(folders)} "
                f"folders such as {folders[0]}; use a file with the ids, with lines "
                '`n01440764 tench` or JSON {"0": ["n01440764", "tench"], ...}'
            )
        return class_names, tuple(folders)
    return class_names, class_names.folders


def _in_label_order(folders: tuple[str, ...], path: str, entries: Sequence[LabeledPath]) -> tuple[str, ...]:
    """Return the sorted class folders of one split in the order of the labels that the list of the other one has.

    ImageNet's labels are the sorted ids, a number names its label, and paths may name class folders. The place of
    other names among the sorted ones says nothing.
    """
    if all(WNID.match(folder) for folder in folders):
        return folders
    if all(map(is_number, folders)) and sorted(map(int, folders)) == list(range(len(folders))):
        return tuple(sorted(folders, key=int))
    if all(os.path.basename(os.path.dirname(entry.path)) in folders for entry in entries):
        return folders  # _check_labels compares them
    raise UserError(
        f"{path}: has labels, and the other split has class folders such as {folders[0]}: which label a folder stands "
        "for is unknown; give the class names in the order of the labels with ",
        Option("data.names", "FILE"),
    )


def _read_beside(settings: Settings, split: str) -> list[LabeledPath]:
    return webdataset.read_labeled(settings.root, common.class_root(settings, split))


def _read_folders(settings: Settings, split: str, folders: tuple[str, ...], notes: list[str]) -> list[LabeledPath]:
    """List the images of a split in class folders, labeled by the order of `folders`."""
    root, list_name, name = settings.root, f"{split}_list.txt", common.class_root(settings, split)
    folder = os.path.join(root, name)
    entries = read_folders(root, name, folders, images.EXTENSIONS, notes)
    if entries:
        return entries
    found = f"{root}: there is neither {list_name} nor a folder {split}/"
    if sources.is_folder(folder):
        _, names = next(walk(folder))
        files = len(names)
        held = f"{files} files that are in no class folder" if files else "no class folder with images"
        found = "; ".join([f"{folder}: there is no list of labels, and this folder holds {held}", *notes])
    raise UserError(
        f"{found}; put {list_name} (lines `relative/path.JPEG label`) into {root}, name a list with ",
        Option(f"data.{split}_list", "FILE"),
        f", or make folders {split}/<class>/ with images (files ending in {', '.join(images.EXTENSIONS)})",
        *common.hold_out_remedy(settings),
        *(() if sources.is_folder(folder) else splits_below(root) or (similar_path(folder),)),
    )


def _read_list(settings: Settings, split: str, path: str, notes: list[str]) -> list[LabeledPath]:
    entries = read_list(path, folders=False, notes=notes)
    check_inside(path, (entry.path for entry in entries), settings.allow_outside_root)
    if not any(sources.is_file(os.path.join(settings.root, entry.path)) for entry in entries[: common.PROBED_PATHS]):
        # Paths of Caffe's val.txt are relative to val/.
        remedy = f"paths must be relative to data.root or to its folder {split}/"
        common.require_paths(path, os.path.join(settings.root, split), entries, remedy)
        entries = [LabeledPath(os.path.join(split, entry.path), entry.label) for entry in entries]
    return entries


def _check_labels(path: str, entries: Sequence[LabeledPath], names: Sequence[str], folders: Sequence[str]) -> None:
    """Check that labels of a list are below the number of classes and agree with the class folders of its paths."""
    label_of = {folder: label for label, folder in enumerate(folders)}
    for entry in entries:
        common.check_label(path, entry, len(names))
        folder = os.path.basename(os.path.dirname(entry.path))
        if label_of.get(folder, entry.label) != entry.label:
            raise UserError(
                f"{path}: {entry.path} has label {entry.label}, but the folder {folder} is class "
                f"{label_of[folder]} of {len(names)}; give the class names in the order of their labels with ",
                Option("data.names", "FILE"),
            )
