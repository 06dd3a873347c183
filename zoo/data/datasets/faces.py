"""Aligned faces: packs of insightface, lists of PLSC or a folder per identity, and pairs of images for verification."""

import copy
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Literal

import numpy as np

from zoo.data import cache, mixing, record, sources, splitting
from zoo.data.audit import Inventory
from zoo.data.augment import Target, steps
from zoo.data.augment.steps import Pipeline, Steps, on_image, standard
from zoo.data.batch import LABEL, Field
from zoo.data.contents import Content
from zoo.data.dataset import LoaderSettings, Pending, PlannedSample
from zoo.data.datasets import common, verification
from zoo.data.datasets.verification import FOLDS, MEAN, PairSet, VerificationPairs
from zoo.data.errors import BadSample, Option, UserError
from zoo.data.fields import Classes, Count, Doc, FilePath, HeldOut, Range, SettingError
from zoo.data.formats import face_files, face_packs
from zoo.data.formats.face_files import FaceFiles
from zoo.data.formats.face_packs import FacePack
from zoo.data.formats.lists import check_inside
from zoo.data.record import DataRecord, Item
from zoo.data.transforms import pixels
from zoo.data.transforms.geometry import Geometry

DEFAULT_FILES = {"rec": "train.rec", "list": "label.txt"}  # by data.format
PROBED_IMAGES = 20  # images that are opened before a run; one readable image is enough
PUBLISHED_SETS = {"lfw.bin", "cfp_fp.bin", "agedb_30.bin"}  # of the recipes; own data may come without them
COUNTED_LABELS = 20_000  # images of a pack whose identities are read before a run, to count them
LAYOUT = """\
  either train.rec and train.idx (packs of insightface), or label.txt with lines `relative/path label`,
  or train/<identity>/*.jpg; and the files that data.verification names, if any"""
STD = {"insightface": MEAN, "plsc": (128 / 255,) * 3}  # (x - 127.5) / 127.5 and (x - 127.5) / 128


@dataclass(frozen=True)
class Settings(LoaderSettings):
    root: Annotated[FilePath, Doc("Folder of the data set, archives, or an address.")] = "datasets/ms1m"
    format: Annotated[
        Literal["auto", "rec", "list", "folder"],
        Doc("Format of the training set; auto: a pack, else a list, else folders."),
    ] = "auto"
    train: Annotated[
        FilePath | None, Doc("Training set in root; null: train.rec, label.txt, or the folder train, else root itself.")
    ] = None
    allow_outside_root: Annotated[bool, Doc("Let lists name files by absolute paths or with `..`.")] = False
    num_classes: Annotated[
        Classes | None, Doc("Number of identities; null: as stored in the pack, or the largest label of the list + 1.")
    ] = None
    size: Annotated[Count, Doc("Side of the square images, in pixels.")] = 112
    resize: Annotated[bool, Doc("Resize images of another size; otherwise they are unreadable.")] = False
    normalisation: Annotated[
        Literal["insightface", "plsc"], Doc("Convention whose mean and standard deviation pixels are normalized by.")
    ] = "insightface"
    flip: Annotated[bool, Doc("Mirror half of the training images.")] = True
    augment: Annotated[Steps | None, Doc("Augmentations in place of flip (docs/data.md); null: flip alone.")] = None
    verification: Annotated[
        tuple[FilePath, ...], Doc("Verification sets in root: lfw.bin, or lists of pairs such as lfw/pairs.txt.")
    ] = ()
    val_fraction: Annotated[
        HeldOut, Doc("Fraction of the identities to hold out where there is no verification set.")
    ] = 0.05
    val_pairs: Annotated[
        int, Range(low=FOLDS), Doc("Largest number of pairs that are drawn from the identities held out.")
    ] = 6000

    def __post_init__(self):
        super().__post_init__()
        steps.check(self.augment, "face", self.flip, (self.size, self.size))
        mixing.refuse(self, "a face shows one person, and cannot be mixed")
        if self.val_pairs % 2:
            raise SettingError("val_pairs", "must be an even number")

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of the normalization, for pixels in [0, 1]."""
        return STD[self.normalisation]


class FaceSplit:
    """The training split. It keeps no state between samples, so threads and processes may share it.

    Fields: `image` uint8 (size, size, 3) RGB, `label` int64 ().

    Args:
        rows: Indices of the images in the source that are trained on.
        classes: Names of the identities, or a range where they have numbers only.
    """

    views = 1

    def __init__(
        self,
        settings: Settings,
        source: FaceFiles | FacePack,
        rows: Sequence[int] | np.ndarray,
        classes: Sequence,
        notes: tuple[str, ...],
    ):
        self.settings = settings
        self.source = source
        self.rows = rows
        self.classes = classes
        self.pipeline = Pipeline(settings, standard(horizontal_flip=settings.flip))
        self.target = Target(settings.size, settings.size, MEAN, settings.std)
        self.notes = notes + self.pipeline.notes
        self.fields = (Field("image", (settings.size, settings.size, 3), "uint8", MEAN, settings.std), LABEL)

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return self.source.name(self.rows[index])

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode and augment one image. Raises BadSample."""
        encoded, label = self._encoded_and_label(index)
        image = face_files.decode(encoded, self.settings.size, self.settings.resize)
        flipped, drawn = self.pipeline.draw(self.target, rng)
        return {"image": on_image(pixels.flip(image) if flipped else image, drawn), "label": label}

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one sample as `sample` does, and leave its pixels to the loader. Raises BadSample."""
        encoded, label = self._encoded_and_label(index)
        content = face_files.read_plain(encoded, self.settings.size)
        if content is None or not self.pipeline.is_geometric:
            return {**self.sample(index, rng)}
        flipped, _ = self.pipeline.draw(self.target, rng)
        return {"image": Pending((content,), Geometry(flip=flipped)), "label": label}

    def inventory(self, deep: bool) -> Inventory:
        """Return what the split holds, for checks; deep: whether packs of any size are read."""
        source, rows = self.source, np.asarray(self.rows)
        is_open = deep or not source.in_pack
        is_counted = is_open or len(self) <= COUNTED_LABELS
        return Inventory(
            len(self),
            self.name,
            self.classes,
            (lambda index: source.size(rows[index])) if is_open else None,
            (lambda index: source.digest(rows[index])) if is_open else None,
            source.all_labels()[rows] if is_counted else None,
            "" if is_counted else f"images per class are not counted in packs of more than {COUNTED_LABELS}",
            may_miss=self.settings.num_classes is not None,
            singles_are_normal=True,
        )

    def _encoded_and_label(self, index: int) -> tuple[face_files.EncodedFace, np.ndarray]:
        encoded, label = self.source.encoded_and_label(self.rows[index])
        if label >= len(self.classes):
            raise BadSample(f"label {label}, but there are {len(self.classes)} identities; labels count from 0")
        return encoded, np.asarray(label, np.int64)


def load(settings: Settings) -> tuple[FaceSplit, VerificationPairs]:
    root = settings.root
    common.require_root(root, "your faces", LAYOUT, "arcface_demo")
    source, classes, is_folder = open_source(settings)
    if len(classes) < 2:
        raise UserError(f"{root}: there is only one identity, {classes[0]}; each needs its own label or folder")
    check_any_readable(source, settings)
    rows: Sequence[int] | np.ndarray = range(len(source))
    notes: tuple[str, ...] = ()
    if settings.verification and not (is_folder and _lacks_published_sets(settings)):
        local, outside = cache.open_cache(settings), settings.allow_outside_root
        pair_sets = verification.open_sets(root, settings.verification, local, outside)
    else:
        held_out = max(2, round(settings.val_fraction * len(classes)))
        which = f"the last {held_out} of {len(classes)} identities"
        if isinstance(source, FaceFiles):
            source, classes, held_out = _by_content(source, classes, held_out)
            which = f"{held_out} of {len(classes)} identities, by the contents of their images,"
        rows, pair_set = _hold_out(settings, source, len(classes), held_out)
        pair_sets = (pair_set,)
        missing = (
            f"{root} has none of {', '.join(settings.verification)}"
            if settings.verification
            else "no verification sets"
        )
        notes = (
            f"{missing}: {which} are held out of training and give "
            f"{len(pair_set.same)} pairs (data.val_fraction, data.verification)",
        )
        classes = classes[:-held_out]
    if settings.eval_bad == "error":
        for pair_set in pair_sets:
            verification.check_all_readable(pair_set, settings)
    return FaceSplit(settings, source, rows, classes, notes), VerificationPairs(settings, pair_sets, classes)


def describe(train: FaceSplit, val: VerificationPairs, method: str | None = None) -> DataRecord:
    """Return the record of the training source, the verification sets and the pairs.

    Args:
        method: `sampled` or `full`; default data.checksum.
    """
    items: list[Iterable[Item]] = []
    for pair_set in val.pair_sets:
        items.append([pair_set.item()])
        if pair_set.source is not train.source:
            items.append(pair_set.source.items())
    settings = train.settings
    return record.build(
        (len(train), train.classes, train.source.items()),
        (len(val), train.classes, chain.from_iterable(items)),
        settings.root,
        method or settings.checksum,
    )


def files_of(sample: str) -> list[str]:
    """Return the items of the record that a sample is made of, by its name."""
    pair = re.fullmatch(r".* pair \d+ \((.*), (.*)\)", sample)
    images = pair.groups() if pair else (sample,)
    return [re.sub(r" (key|image) \d+$", "", image) for image in images]


def _by_content(source: FaceFiles, classes: Sequence, count: int) -> tuple[FaceFiles, Sequence, int]:
    """Put identities to hold out last: those of two images or more with the smallest keys (data/splitting.py).

    More than `count` are held out where these have too few pairs of images for an evaluation. Identities that share a
    copy of an image are held out together, or not at all.

    Returns:
        The images with new labels, the classes in their order, and how many of them are to be held out.
    """
    labels, images = source.labels, np.bincount(source.labels, minlength=len(classes))
    files = [(Content(os.path.join(source.root, source.name(index))),) for index in range(len(source))]
    keys = splitting.group_keys(splitting.content_keys(files, source.root), labels, len(classes))
    able = np.flatnonzero(images > 1)
    able = able[np.argsort(keys[able])]
    pairs = np.cumsum(images[able] * (images[able] - 1) // 2)
    held = np.isin(keys, keys[able[: max(count, np.searchsorted(pairs, FOLDS // 2) + 1)]])
    order = np.argsort(held, kind="stable")
    source = copy.copy(source)
    source.labels = np.argsort(order)[labels]
    return source, classes if isinstance(classes, range) else tuple(classes[label] for label in order), int(held.sum())


def _hold_out(
    settings: Settings, source: FaceFiles | FacePack, identities: int, held_out: int
) -> tuple[Sequence[int] | np.ndarray, PairSet]:
    """Return the rows that are left to train on, and pairs of the last identities. Raises UserError if too few."""
    if identities - held_out < 2:
        raise UserError(
            f"{settings.root}: {identities} identities are too few to hold some out for validation; name "
            "verification sets with ",
            Option("data.verification", ["lfw.bin"]),
        )
    rows, others = source.split_by_label(identities - held_out)
    labels = np.array([source.label(index) for index in others])
    return rows, verification.sample_pairs(source, others, labels, settings.val_pairs)


def _lacks_published_sets(settings: Settings) -> bool:
    """Return whether the recipe names published verification sets only, and root holds none of them."""
    found = (verification.find_set(settings.root, name) for name in settings.verification)
    return set(settings.verification) <= PUBLISHED_SETS and not any(found)


def open_source(settings: Settings) -> tuple[FaceFiles | FacePack, Sequence, bool]:
    """Open the training images.

    Returns:
        The images; their identities, names or a range where they have numbers only; and whether each has a folder.
    """
    file_format, name = _find_source(settings)
    path = os.path.join(settings.root, name)
    if file_format == "folder":
        if settings.num_classes is not None:
            raise UserError(f"data.num_classes: {path} has a folder per identity, which are counted; leave it out")
        local, allow_empty = cache.open_cache(settings), settings.allow_missing_classes
        return *face_files.read_identities(settings.root, name, local, allow_empty), True
    if file_format == "list":
        return *_open_list(settings, path), False
    cache.refuse_packs(settings)
    pack = FacePack(path)
    count = settings.num_classes or face_packs.read_property(path) or pack.identities
    if not count:
        raise UserError(
            f"{path}: neither the pack nor a file `property` beside it states the number of identities; set it with ",
            Option("data.num_classes", "N"),
        )
    if count > face_packs.MAX_FLOAT32_LABEL and not pack.has_exact_labels():
        raise UserError(
            f"{path}: its labels are 32-bit floats, which cannot distinguish more than {face_packs.MAX_FLOAT32_LABEL} "
            f"identities, but there are {count}; write 64-bit labels, or use a list"
        )
    return pack, range(count), False


def _open_list(settings: Settings, path: str) -> tuple[FaceFiles, range]:
    source = face_files.read_list(settings.root, path, cache.open_cache(settings))
    check_inside(path, map(source.name, range(len(source.labels))), settings.allow_outside_root)
    largest = int(source.labels.argmax())
    if settings.num_classes is None and not settings.allow_missing_classes:
        _check_gaps(path, source)
    count = settings.num_classes or int(source.labels[largest]) + 1
    if source.labels[largest] >= count:
        raise UserError(
            f"{path}: {source.name(largest)} has label {source.labels[largest]}, but data.num_classes is "
            f"{count}; labels count from 0"
        )
    return source, range(count)


def _check_gaps(path: str, source: FaceFiles) -> None:
    """Check that every label up to the largest one has an image: a mistyped one would add classes without any."""
    labels, counts = np.unique(source.labels, return_counts=True)
    following = int(np.argmax(labels != np.arange(len(labels))))
    label = int(labels[following])
    if label == following:
        return
    (rows,) = np.nonzero(source.labels == label)
    alone = " alone" if counts[following] == 1 else ""
    raise UserError(
        f"{path}: no image has the label {following}{f' to {label - 1}' if label > following + 1 else ''}, but "
        f"{source.name(int(rows[0]))}{alone} has {label}; correct it, or let this pass with ",
        Option("data.allow_missing_classes", True),
    )


def _find_source(settings: Settings) -> tuple[str, str]:
    """Return the format of the training images, and the name of their file or folder in root."""
    root, name, file_format = settings.root, settings.train, str(settings.format)
    if file_format == "auto" and name is not None:
        is_folder = sources.is_folder(os.path.join(root, name))
        file_format = "folder" if is_folder else "rec" if name.endswith(".rec") else "list"
    elif file_format == "auto":
        existing = (key for key, file in DEFAULT_FILES.items() if sources.is_file(os.path.join(root, file)))
        file_format = next(existing, "folder")
    folder = "train" if sources.is_folder(os.path.join(root, "train")) else ""
    return file_format, name if name is not None else DEFAULT_FILES.get(file_format, folder)


def check_any_readable(source: FaceFiles | FacePack, settings: Settings) -> None:
    """Check that one of the first images can be opened, so that a wrong root or size is found before a run starts."""
    count = min(PROBED_IMAGES, len(source))
    problems = [verification.unreadable(source, index, settings) for index in range(count)]
    if all(problems):
        raise UserError(
            f"{settings.root}: none of the first {count} images can be used, for example {problems[0]}; paths of a "
            "list must be relative to data.root"
        )
