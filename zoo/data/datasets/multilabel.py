"""Images with any number of classes each, named by a table (CSV, TSV, JSONL) of labels."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zoo.data import mixing
from zoo.data.audit import Inventory
from zoo.data.batch import Field
from zoo.data.contents import Content
from zoo.data.datasets import common, imagenet
from zoo.data.datasets.common import SPLITS
from zoo.data.errors import Option, UserError
from zoo.data.fields import SettingError
from zoo.data.formats import label_sets, table_rows
from zoo.data.formats.class_names import read_classes
from zoo.data.formats.label_sets import LabeledSet
from zoo.data.formats.lists import LabeledPath, check_inside

LAYOUT = """\
  train.csv and val.csv, or, with data.val_fraction=0.2, one table; a row names an image below the folder, and its
  classes in one column (`cat|dog`) or in a column of 0 and 1 for every class; JSONL has an object per line"""
TABLES = tuple("{}" + suffix for suffix in table_rows.TABLES)
describe = common.describe


@dataclass(frozen=True)
class Settings(imagenet.Settings):
    """The `data:` section of a recipe on images with several classes each; keys as those of imagenet."""

    task: ClassVar[str] = "multilabel"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balance:
            raise SettingError("balance", "an image may have several classes here, or none; leave it out")


class MultiLabelSplit(imagenet.ImageSplit):
    """One split. Fields as those of ImageSplit, but `label` float32 (classes,): 1 for each class of the image."""

    def __init__(self, settings: Settings, samples: Sequence[LabeledSet], classes: tuple[str, ...], training: bool):
        super().__init__(settings, [LabeledPath(sample.path, 0) for sample in samples], classes, training)
        # Two arrays, because every worker process gets a copy and a million small objects are slow to pickle.
        self.ends = np.cumsum([len(sample.labels) for sample in samples], dtype=np.int64)
        self.labels = np.array([label for sample in samples for label in sample.labels], np.int64)

    def labels_of(self, index: int) -> np.ndarray:
        """Return the labels of a sample, sorted."""
        return self.labels[self.ends[index - 1] if index else 0 : self.ends[index]]

    def target(self, index: int) -> np.ndarray:
        target = np.zeros(len(self.classes), np.float32)
        target[self.labels_of(index)] = 1
        return target

    def item_label(self, index: int) -> str:
        return "|".join(self.classes[label] for label in self.labels_of(index))

    def inventory(self, deep: bool) -> Inventory:
        counts = np.bincount(self.labels, minlength=len(self.classes))
        of_classes = f"{counts.min()}/{np.median(counts):g}/{counts.max()} images per class: min/median/max"
        return super().inventory(deep)._replace(labels=None, uncounted=of_classes if self.training else "")

    def show(self, training: bool) -> None:
        super().show(training)
        label = Field("label", (len(self.classes),), "float32", missing=-1)
        more = mixing.fields(self.settings, len(self.classes)) if training else ()
        self.fields = (self.fields[0], label, *more)


def load(settings: Settings, splits: Sequence[str] = SPLITS) -> tuple[MultiLabelSplit, MultiLabelSplit]:
    """Open the training and the validation split; see imagenet.load."""
    common.require_root(settings.root, "your images", LAYOUT, "resnet50_demo")
    notes = list[str]()
    tables = common.find_lists(settings, splits, TABLES, notes)
    is_divided = settings.val_fraction is not None and "train" in tables and tables.get("val") is None
    if is_divided:
        del tables["val"]
    given = {split: _require_table(settings, split, path) for split, path in tables.items()}
    named = common.given_or_first(settings.root, "data.names", settings.names, imagenet.CLASS_FILES)
    names, found = label_sets.read(given, settings.root, read_classes(named).names if named else (), notes)
    for split, path in given.items():
        check_inside(path, (sample.path for sample in found[split]), settings.allow_outside_root)
    if is_divided:
        files = [(Content(os.path.join(settings.root, sample.path)),) for sample in found["train"]]
        strata = _strata(found["train"], settings.val_fraction or 0)
        found = common.divide(settings, found["train"], files, strata, notes)
    train, val = (
        MultiLabelSplit(settings, found.get(split, found["val"]), names, split == "train") for split in SPLITS
    )
    train.notes += (*notes, *(_without(train, val) if "train" in found else ()))
    val.held_out = common.held_out(settings) if is_divided else ""
    return train, val


def _require_table(settings: Settings, split: str, path: str | None) -> str:
    if path is None or not table_rows.is_table(path):
        remedy = common.hold_out_remedy(settings) if split == "val" else ()
        what = f"{path} is none" if path else f"there is none in {settings.root}"
        raise UserError(
            f"data.name=multilabel reads tables ({', '.join(table_rows.TABLES)}), and for {split} {what}; name one "
            "with ",
            Option(f"data.{split}_list", "FILE.csv"),
            *remedy,
        )
    return path


def _strata(samples: Sequence[LabeledSet], fraction: float) -> list[int]:
    """Return for each sample a class of which `divide` holds a part out: its rarest one of which that is an image.

    It is -1 for samples without such a class, which are divided together.
    """
    counts = np.bincount([label for sample in samples for label in sample.labels], minlength=1)
    enough = [[label for label in sample.labels if counts[label] * fraction >= 1] for sample in samples]
    return [min(labels, key=lambda label: (counts[label], label), default=-1) for labels in enough]


def _without(train: MultiLabelSplit, val: MultiLabelSplit) -> list[str]:
    """Return notes on classes that no image of a split has."""
    notes = []
    for title, split in (("training", train), ("validation", val)):
        counts = np.bincount(split.labels, minlength=len(split.classes))
        if missing := [name for name, count in zip(split.classes, counts) if not count]:
            first = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            notes.append(f"warning: no {title} image has {len(missing)} of the {len(counts)} classes: {first}")
    return notes
