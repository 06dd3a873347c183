"""Parts that data sets share: a split of files, the root folder, lists, the record of the set, its protocol id."""

import copy
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np

from zoo.data import cache, contents, order, record, sources
from zoo.data.augment.steps import Pipeline, Steps
from zoo.data.contents import Content
from zoo.data.errors import Option, Part, UserError, similar_path
from zoo.data.fields import Deviations, Doc, HeldOut, Means, Probability, SettingError
from zoo.data.formats import images, regular, table_rows
from zoo.data.formats.lists import LabeledPath
from zoo.data.formats.splits import class_split
from zoo.data.packs import manifest
from zoo.data.record import DataRecord, Item

if TYPE_CHECKING:
    from zoo.data.packs.prepared import PreparedSplit

Entry = TypeVar("Entry")
SPLITS = ("train", "val")
LIST_FILES = ("{}_list.txt", "{}.txt", "{}.list")  # default lists in root, by split: PaddleClas's, Caffe's, ours
PROBED_PATHS = 20  # paths of a list that are checked before a run

# Settings of several data sets
ValFraction = Annotated[
    HeldOut | None, Doc("Fraction of each class to hold out, by contents, where there is no validation split.")
]
Balance = Annotated[
    Probability, Doc("In training, show a class of n samples in proportion to n^(1 - balance); 1: all equally often.")
]
Resample = Annotated[
    Literal["fast", "exact"],
    Doc("Filter of antialias in training; fast: within 1 of 255 of Pillow's, exact: Pillow's own bytes."),
]
Levels = Annotated[
    images.Levels,
    Doc("Levels that become black and white, of gray images of more than 8 bits; null: all that 16 bits have."),
]
Mean = Annotated[Means, Doc("Mean of red, green and blue for the normalization, of pixels from 0 to 1.")]
Std = Annotated[
    Deviations, Doc("Standard deviation of red, green and blue for the normalization, of pixels from 0 to 1.")
]


def check_levels(levels: images.Levels) -> None:
    """Raise SettingError unless the levels that become black and white ascend."""
    if levels and not -math.inf < levels[0] < levels[1] < math.inf:
        raise SettingError("levels", f"the first must be below the second, got {list(levels)}")


def levels_text(levels: images.Levels) -> str:
    """Return the part of a protocol id for data.levels, by which the same files have other pixels."""
    return f"#{levels[0]:g}-{levels[1]:g}" if levels else ""


class FileSplit:
    """Base of splits of files, or of what was prepared of them. It keeps no state between samples.

    So threads and processes may share or copy it.

    Attributes:
        settings: of the data set, with `root`, `cache`, `checksum` and `augment`.
        classes: names, or a range where there are numbers only.
        prepared: where samples are read from in place of the files.
        local: gives the path to read a file from.
        training: whether samples are shown as in training, with the augmentations of `pipeline`.
        held_out: part of the protocol id of a validation split that was held out of the training samples.
        balance: how classes are balanced in training; None: they are not.
    """

    views = 1
    balance: order.Balance | None = None
    held_out = ""
    notes: tuple[str, ...] = ()

    def __init__(
        self, settings: Any, classes: Sequence, standard: Steps, training: bool, prepared: "PreparedSplit | None"
    ):
        if prepared and getattr(settings, "levels", None):
            raise UserError(
                f"{settings.root}: a prepared set may have 8 bits by now, to which data.levels does not apply; train "
                "from the files, or leave it out: ",
                Option("data.levels", None),
            )
        self.settings, self.classes, self.prepared = settings, classes, prepared
        self.local, self.pipeline = cache.open_cache(settings), Pipeline(settings, standard)
        self.notes += self.pipeline.notes if training else ()
        self.show(training)

    def balance_classes(self, labels: np.ndarray) -> None:
        """Balance the classes of a training split as data.balance says. labels: of all samples, int64."""
        strength = self.settings.balance
        if self.training and strength and labels.size:  # a predictor has a split without samples
            self.balance, counts = order.Balance(labels, strength), np.bincount(labels)
            times = (order.per_epoch(counts, strength) / counts.clip(1))[counts > 0]
            self.notes += (
                f"data.balance: by class, an epoch shows a sample {times.min():.3g} to {times.max():.3g} times",
            )

    @classmethod
    def open_prepared(cls, settings: Any, splits: "tuple[PreparedSplit, PreparedSplit]") -> tuple[Self, Self]:
        """Open the labeled paths of a prepared data set, for training and for evaluation."""
        make: Any = cls
        train, val = splits
        classes = train.info.classes
        opened = (
            make(settings, train.labeled_paths(), classes, True, train),
            make(settings, val.labeled_paths(), classes, False, val),
        )
        opened[1].held_out = val.info.held_out
        return opened

    def __len__(self) -> int:
        raise NotImplementedError

    def name(self, index: int) -> str:
        """Return the path of a sample, relative to root."""
        raise NotImplementedError

    def show(self, training: bool) -> None:
        self.training = training

    def for_evaluation(self) -> Self:
        split = copy.copy(self)
        split.show(training=False)
        return split

    def path(self, index: int) -> str:
        return os.path.join(self.settings.root, self.name(index))

    def files(self, index: int) -> tuple[Content, ...]:
        """Return the files whose contents make a sample; of a clip in frames the first, the middle and the last."""
        return (Content(self.path(index)),)

    def file_size(self, index: int) -> int:
        """Return the bytes of the file of a sample, -1 if it is missing."""
        return regular.size(self.path(index)) if self.prepared is None else int(self.prepared.bytes[index])

    def digest(self, index: int) -> bytes:
        return contents.digest_file(self.prepared.first_content(index) if self.prepared else self.files(index)[0])

    def items(self) -> Iterator[Item]:
        """Return the samples in their order, with the files and records whose contents make them."""
        found = self.prepared.contents() if self.prepared else map(self.files, range(len(self)))
        for index, files in enumerate(found):
            yield Item(self.name(index), self.item_label(index), files)

    def item_label(self, index: int) -> str:
        """Return what an Item says of the label of a sample."""
        raise NotImplementedError


def prepared_splits(
    settings: Any, media: str, decided: dict[str, object]
) -> "tuple[PreparedSplit, PreparedSplit] | None":
    """Open the training and the validation split of a prepared data set.

    Args:
        media: `video`, `image` or `pair`, what the caller reads.
        decided: Settings by name that must not be set, because the manifest decides.

    Returns:
        The splits, or None if the folder is no prepared data set.
    """
    root = settings.root
    if not manifest.is_prepared(root):
        return None
    from zoo.data.packs.prepared import PreparedSplit  # which other data sets do without

    local = cache.open_cache(settings)
    splits = PreparedSplit(root, "train", local), PreparedSplit(root, "val", local)
    stored = splits[0].info.media
    if stored != media:
        there, wanted = manifest.MEDIA[stored], manifest.MEDIA[media]
        raise UserError(f"{root}: zoo data prepare prepared {there} there, not {wanted}; see data.name")
    given = [f"data.{name}" for name, value in decided.items() if value]
    if given:
        raise UserError(f"{', '.join(given)}: decided when {root} was prepared; leave it out")
    if splits[0].info.shards:
        cache.refuse_packs(settings)
    for split in splits:
        if not len(split):
            raise UserError(f"{root}: there is no readable sample in the split {split.split}; see unreadable.csv there")
    return splits


def require_root(root: str, files: str, layout: str, demo: str) -> None:
    """Check that the folder of a data set exists.

    Args:
        files: What belongs there, such as `your images`.
        demo: Recipe that needs no data, such as `resnet50_demo`.
    """
    sources.check_root(root)
    if sources.is_folder(root):
        return
    raise UserError(
        f"no data: there is no folder {root} (absolute path {sources.absolute(root)})\n"
        f"  put {files} there, or name another folder with ",
        Option("data.root", "FOLDER"),
        f"; it holds\n{layout}\n"
        f"  no data yet? the demo generates its own: python train.py -c configs/{demo}.yaml --amp",
    )


def first_existing(root: str, names: Sequence[str]) -> str | None:
    """Return the path of the first of these files that exists in root."""
    return next((path for path in (os.path.join(root, name) for name in names) if sources.is_file(path)), None)


def given_or_first(root: str, key: str, given: str | None, names: Sequence[str]) -> str | None:
    """Return the path of a list that the recipe names, or else of the first of these files that exists in root.

    A given path is relative to the current folder, or to root if there is no such file. key: of the recipe.
    """
    if given is None:
        return first_existing(root, names)
    in_root = os.path.join(root, given)
    for path in (given, in_root):
        if sources.is_file(path):
            return path
    if sources.exists(given):  # a folder or a pipe, which whoever reads it refuses
        return given
    similar = similar_path(in_root) or similar_path(given)
    raise UserError(f"{key}: there is no file {given}, neither in the current folder nor in {root}{similar}")


def find_list(settings: Any, split: str, names: Sequence[str]) -> str | None:
    """Return the path of the list of a split: data.train_list or data.val_list, else the first default in root."""
    key = f"{split}_list"
    return given_or_first(settings.root, f"data.{key}", getattr(settings, key), [name.format(split) for name in names])


def find_lists(
    settings: Any,
    splits: Sequence[str],
    names: Sequence[str],
    notes: list[str],
    columns: Sequence[str] = table_rows.IMAGES,
) -> dict[str, str | None]:
    """Return the lists of splits as find_list does; a table of all samples may have a column that divides them."""
    lists, train = {split: find_list(settings, split, names) for split in splits}, None
    if "train" not in splits and lists["val"] is None:
        with suppress(UserError):  # an evaluation needs no training split
            train = find_list(settings, "train", names)
    return table_rows.with_val(lists, notes, columns, train)


def class_root(settings: Any, split: str) -> str:
    """Return the folder in root that holds the class folders of a split.

    It is root itself for training samples that have no folder train, and of which a part is held out.
    """
    is_root = split == "train" and lacks_validation(settings, None)
    return class_split(settings.root, split) or ("" if is_root else split)


def lacks_validation(settings: Any, path: str | None) -> bool:
    """Return whether a part of the training samples is to be held out: no list and no folder holds others."""
    return settings.val_fraction is not None and path is None and class_split(settings.root, "val") is None


def divide(
    settings: Any,
    entries: Sequence[Entry],
    files: Iterable[Sequence[Content]],
    labels: Sequence[int],
    notes: list[str],
) -> dict[str, list[Entry]]:
    """Divide samples into both splits, by their contents (data/splitting.py).

    Args:
        labels: their classes; the same for all where samples have none.
    """
    from zoo.data import splitting  # which most data sets do without

    keys = splitting.content_keys(files, settings.root)
    held = splitting.hold_out(keys, labels, settings.val_fraction)
    if not held.any():
        are_one = len(held) > 1 and len({*keys.tolist()}) == 1
        cause = (
            "as all are parts or copies of one file; add samples of other files"
            if are_one
            else "which takes two different ones of a class; add samples"
        )
        raise UserError(f"{settings.root}: none of the {len(held)} samples can be held out for validation, {cause}")
    notes.append(
        f"no validation split: {held.sum()} of {len(held)} samples are held out of training, by their contents "
        "(data.val_fraction)"
    )
    return {split: [entry for entry, is_val in zip(entries, held) if is_val == (split == "val")] for split in SPLITS}


def hold_out_remedy(settings: Any) -> tuple[Part, ...]:
    """Return the end of a message on a missing split."""
    if settings.val_fraction is not None:
        return ()
    option, of_prepare = Option("data.val_fraction", 0.2), " (of zoo data prepare: --val-fraction 0.2)"
    return ", or hold out a part of the samples for validation with ", option, of_prepare


def held_out(settings: Any) -> str:
    """Return the part of a protocol id that names the validation split of `divide`."""
    return f"-held_out{settings.val_fraction:g}"


def check_label(path: str, entry: LabeledPath, classes: int) -> None:
    if entry.label >= classes:
        raise UserError(
            f"{path}: {entry.path} has label {entry.label}, but there are only {classes} classes (0 to {classes - 1}); "
            "labels count from 0"
        )


def require_paths(path: str, root: str, entries: Sequence[LabeledPath], remedy: str) -> None:
    """Check that one of the first paths of a list exists below a root."""
    head = [os.path.join(root, entry.path) for entry in entries[:PROBED_PATHS]]
    if not any(map(sources.exists, head)):
        raise UserError(f"{path}: none of its first {len(head)} paths exists, for example {head[0]}; {remedy}")


def describe(train: FileSplit, val: FileSplit, method: str | None = None) -> DataRecord:
    """Return the record of a data set, whose checksum is an md5 over path, label and contents of all files.

    It changes when a file is replaced, missing or overwritten. With data.checksum=sampled, which reads blocks of large
    files, a change within one of them may go unseen.

    Args:
        method: `sampled` or `full`; default data.checksum.
    """
    first, second = ((len(split), split.classes, split.items()) for split in (train, val))
    return record.build(first, second, train.settings.root, method or train.settings.checksum)


class Protocol(NamedTuple):
    """A data set's part of a protocol id, which a task completes (zoo.tasks.Task.protocol).

    The filters of a resize and the normalization belong to the model and are not part of it.

    Attributes:
        name: of the set whose validation split is evaluated, such as k400 or lfw+cfp_fp.
        views: what the model sees of a sample: frames, clips, crops, sizes and scales, such as 8x1x1@224, 224-of-256
            or 1024x2048.
    """

    name: str
    views: str


def set_name(settings: Any, num_classes: int, official: Mapping[int, str]) -> str:
    """Return the name of a data set: data.set, else a well-known set with as many classes, else the folder."""
    return settings.set or official.get(num_classes) or root_name(settings)


def root_name(settings: Any) -> str:
    """Return the name of the folder or archive of a data set, or of the folder of several archives, as one word."""
    folder, name = os.path.split(re.sub(r"\.((?i:tar|zip)|parquet|arrow)/?$", "", sources.absolute(settings.root)))
    return re.sub(r"[\s/]+", "_", os.path.basename(folder) if set("{*") & set(name) else name)
