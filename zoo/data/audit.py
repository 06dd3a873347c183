"""Faults of data sets that are found before a run: classes that a split lacks, missing and tiny files, copies.

Lists, folders and file sizes are looked at, a bounded number of them; with `deep` all of them, and contents too.
"""

import io
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import BadSample, Option, UserError, nearest
from zoo.data.formats import csv_files

TITLE = "data"
KEY = "data.allow_missing_classes"
TABLE_NAME = "classes.csv"  # in the folder of a run
SPLITS = ("train", "val")
MAX_LISTED, MAX_NAMED = 10, 3  # problems in a message, files in a line
FILES = 20_000  # of a split whose sizes are asked for, unless `deep`
CONTENTS = 2_000  # training files that are read then, because a validation file has their name and size
IMAGES = 40  # of a split that are read
TINY = 64  # bytes; no image or video is smaller
MOST = 0.5  # of the classes
SMALL, LARGE = 1024, 16384  # bytes; suspicious where the others are large in the median


class Inventory(NamedTuple):
    """Samples of a split, by index below `samples`.

    Attributes:
        name: gives the path of a sample; it begins with the folder of its split where there is one.
        classes: class names by label, or a range where classes have numbers only.
        size: gives the bytes of its file, -1 if the file is missing; None where a sample is no single file.
        digest: gives a digest of its file (data/contents.py), equal for equal files; None as for size.
        labels: int64 (samples,), -1 for a label that cannot be read; None where samples have no class of their own, or
            where counting them would take too long.
        uncounted: why there are no labels, for the log; "" where samples have none.
        pixels: of every class and, last, of ignored ones in `masks` masks, int64 (classes + 1,); None where none were
            looked at.
        masks: how many were looked at; fewer than there are samples only where these show all classes, or too many to
            go on.
        held: what these masks hold, for messages.
        may_miss: whether classes without a sample are normal here, because the data do not decide what classes there
            are: the recipe or a fixed list does.
        remark: gives what of the image of a sample is left out or lost, "" for nothing, and raises BadSample; None of
            samples that are no images.
        singles_are_normal: whether many classes have one sample, as identities do.
    """

    samples: int
    name: Callable[[int], str]
    classes: Sequence
    size: Callable[[int], int] | None = None
    digest: Callable[[int], bytes] | None = None
    labels: np.ndarray | None = None
    uncounted: str = ""
    pixels: np.ndarray | None = None
    masks: int = 0
    held: str = ""
    may_miss: bool = False
    remark: Callable[[int], str] | None = None
    singles_are_normal: bool = False

    def class_name(self, label: int) -> str:
        """Return the name of a class, `class 7` where classes have numbers only."""
        name = self.classes[label]
        return name if isinstance(name, str) else f"class {label}"

    def counts(self) -> np.ndarray | None:
        """Return the samples of every class, or the pixels: int64 (classes,); None if neither is known."""
        if self.labels is None:
            return self.pixels[:-1] if self.pixels is not None and self.masks == self.samples else None
        known = self.labels[(self.labels >= 0) & (self.labels < len(self.classes))]
        return np.bincount(known, minlength=len(self.classes))


class Report(NamedTuple):
    """Result of a check.

    Attributes:
        summary: one line with the samples of both splits and per class.
        problems: lines about classes, each an error.
        warnings: lines about files and about classes with a single sample.
        table: the samples of every class in both splits as CSV, pixels of scenes; "" if they are not known.
    """

    summary: str
    problems: list[str]
    warnings: list[str]
    table: str


def examine(train_set: Any, val_set: Any, deep: bool = False, evaluates: bool = False) -> Report | None:
    """Check both splits of a data set; None for data without files.

    Args:
        train_set, val_set: as `load` of the data set returns them.
        deep: whether contents are read, and nothing is left out however long it takes.
        evaluates: whether nothing is trained, for which the validation split may stand for both.
    """
    if not hasattr(train_set, "inventory"):
        return None
    train, val = train_set.inventory(deep), val_set.inventory(deep)
    warnings, single = [], [train.class_name(label) for label in _singles(train)]
    if single and not train.singles_are_normal:
        warnings.append(f"classes with a single training sample: {_first(single)}")
    if len(train.classes) == 1:
        warnings.append(
            f"there is one class alone, {train.class_name(0)}: a model cannot be wrong; is data.root too high?"
        )
    problems = check_classes(train, val)
    alike = _look_alike(train.classes)
    if alike and not problems:  # the problems name what differs between the splits
        warnings.append(f"classes whose names look alike: {_first(alike)}")
    if train.pixels is not None and val.pixels is not None:
        is_in, counts = train.pixels[:-1] > 0, val.counts()
        if not (train.may_miss or problems or is_in.all()):
            warnings.append(f"classes that none of {train.masks} training masks shows: {_named(train, ~is_in)}")
        if counts is not None and (is_in & (counts == 0)).any():
            warnings.append(f"classes that no validation mask shows: {_named(train, is_in & (counts == 0))}")
    for title, inventory in (("training", train), ("validation", val)):
        warnings += [*check_sizes(title, inventory, deep), *([] if deep else check_images(title, inventory))]
    same = evaluates and len(train_set) == len(val_set) and train.name(0) == val.name(0)
    copies, limit = ([], "") if same else find_copies(train, val, deep)
    if contradictions := list(find_contradictions(train)) if deep else []:
        warnings.append(f"training files of two classes: {_first(contradictions)}")
    if copies:
        first = {right: left for left, right in reversed(copies)}  # a file may have several copies
        pairs = [f"{right} is {first[right]}" for right in sorted(first)]
        warnings.append(f"validation files that are training files too: {_first(pairs)}")
    return Report(_summary(train, val, limit), problems, warnings, _table(train, val))


def lines(report: Report, allowed_by: str = "") -> tuple[str, ...]:
    """Return the lines of a report for the log.

    Args:
        allowed_by: what lets missing classes pass, for the log; "" for nothing.
    """
    more = len(report.problems) - MAX_LISTED
    problems = report.problems[:MAX_LISTED] + ([f"and {more} more"] if more > 0 else [])
    if problems and not allowed_by:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise UserError(
            f"the classes of the data are not those of both splits (differences: {len(report.problems)}):\n{listed}\n"
            "  correct these names and labels, or let them pass with ",
            Option(KEY, True),
        )
    allowed = [f"{TITLE}: passed by {allowed_by}: {problem}" for problem in problems]
    return f"{TITLE}: {report.summary}", *allowed, *(f"{TITLE}: warning: {warning}" for warning in report.warnings)


def check_classes(train: Inventory, val: Inventory) -> list[str]:
    """Return a line for every class that a split lacks, such as `val/bike: train has bikes`.

    A training split is compared with its validation split where both have labels; otherwise it is looked at alone.
    """
    if train.pixels is not None:
        return [] if train.may_miss else check_masks(train, val)
    counts = train.counts()
    if counts is None:
        return []
    strays = list(_strays(train))
    if val.labels is not None and train.labels is not None:
        return [*strays, *_strays(val), *_differences((train, val))]
    if train.may_miss:
        return strays
    return strays + [
        f"{train.class_name(label)}: no training sample (label {label})" for label in np.flatnonzero(counts == 0)
    ]


def check_masks(train: Inventory, val: Inventory) -> list[str]:
    """Return a line if classes are missing from training masks in a way that speaks for a mistake.

    A list of names may have classes that these masks do not show. But values beyond the last one, or most of them, are
    not left out by chance: names or values are shifted. Without names, the values of the masks are the classes.
    """
    assert train.pixels is not None
    is_in, names = train.pixels[:-1] > 0, [train.class_name(label) for label in range(len(train.classes))]
    is_numbered = names == [f"class {label}" for label in range(len(names))]
    shows_last = is_in[-1] or (val.pixels is not None and val.pixels[-2] > 0)
    by_chance = train.masks < train.samples or (shows_last and not is_numbered)
    if is_in.all() or (by_chance and np.mean(is_in) >= MOST):
        return []
    remedy = "number the classes from 0 on without a gap, and write 255 for ignored pixels alone"
    if not is_numbered:
        remedy = f"by the names, 0 is {names[0]} and {len(names) - 1} is {names[-1]}"
    missing = f"{_named(train, ~is_in)} of {len(names)} classes"
    return [f"{missing}: no pixel in {train.masks} training masks, which hold {train.held}; {remedy}"]


def check_sizes(title: str, inventory: Inventory, deep: bool = False) -> Iterator[str]:
    """Return warnings of missing files and of tiny ones: empty, cut off, or an error page of a download."""
    if inventory.size is None or not inventory.samples:
        return
    indices = spread(inventory.samples, inventory.samples if deep else FILES)
    sizes = np.array([inventory.size(index) for index in indices])
    limit = SMALL if np.median(sizes) >= LARGE else TINY
    part = "" if len(indices) == inventory.samples else f", of {len(indices)} that were looked at"
    missing = [inventory.name(indices[place]) for place in np.flatnonzero(sizes < 0)]
    if missing:
        yield f"{title} files that are missing{part}: {_first(missing)}"
    tiny = np.flatnonzero((sizes >= 0) & (sizes < limit))
    if len(tiny):
        names = [f"{inventory.name(indices[place])} ({sizes[place]} bytes)" for place in tiny]
        yield f"{title} files that are tiny{part}: {_first(names)}"


def check_images(title: str, inventory: Inventory) -> Iterator[str]:
    """Return a warning of images of which a part is left out or lost, among some of them."""
    found, looked_at = list[str](), spread(inventory.samples, IMAGES)
    for index in looked_at if inventory.remark else ():
        with suppress(BadSample):  # the stream handles it
            if remark := inventory.remark(index):  # type: ignore[misc]
                found.append(f"{inventory.name(index)}: {remark}")
    if found:
        yield f"{title} images, {len(found)} of {len(looked_at)} that were looked at: {found[0]}"


def find_copies(train: Inventory, val: Inventory, deep: bool = False) -> tuple[list[tuple[str, str]], str]:
    """Find validation files that are training files too: those of equal size, without `deep` also of equal name.

    Only equal contents count, so names such as 00001.jpg in every folder raise no alarm.

    Returns:
        Pairs (training file, validation file), by name; and what was left out, for the log.
    """
    if train.size is None or val.size is None or train.digest is None or val.digest is None:
        return [], ""
    left: Sequence[int] = range(train.samples)
    right: Sequence[int] = range(val.samples)
    if not deep:
        names = {_base_name(val, index) for index in right}
        left = [index for index in left if _base_name(train, index) in names]
        names = {_base_name(train, index) for index in left}
        right = [index for index in right if _base_name(val, index) in names]
    files = max(len(left), len(right)) if deep else FILES
    by_key: defaultdict[tuple[str, int], list[int]] = defaultdict(list)  # validation files by name and size
    for index in (right[place] for place in spread(len(right), files)):
        by_key["" if deep else _base_name(val, index), val.size(index)].append(index)
    suspects = []
    for index in (left[place] for place in spread(len(left), files)):
        key = "" if deep else _base_name(train, index), train.size(index)
        if key[1] > 0 and key in by_key:
            suspects.append((index, key))
    read = suspects if deep else [suspects[place] for place in spread(len(suspects), CONTENTS)]
    limited = max(len(left), len(right)) > files or len(read) < len(suspects)
    pairs, digests = list[tuple[str, str]](), dict[int, bytes]()
    for index, key in read:
        content = train.digest(index)
        for other in by_key[key]:
            digests[other] = digests.get(other) or val.digest(other)
            if digests[other] == content:
                pairs.append((train.name(index), val.name(other)))
    return pairs, "copies were looked for among some files only" if limited else ""


def find_contradictions(inventory: Inventory) -> Iterator[str]:
    """Yield files of a split whose contents another one of another class has; reads those of equal size."""
    if inventory.size is None or inventory.digest is None or inventory.labels is None:
        return
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(inventory.samples):
        by_size[inventory.size(index)].append(index)
    for size, indices in by_size.items():
        first: dict[bytes, int] = {}
        for index in indices if size > 0 and len(set(inventory.labels[indices])) > 1 else ():
            other = first.setdefault(inventory.digest(index), index)
            if inventory.labels[other] != inventory.labels[index]:
                yield f"{inventory.name(index)} is {inventory.name(other)}"


def spread(count: int, limit: int) -> Sequence[int]:
    """Return all numbers below count, or `limit` of them that are evenly spread."""
    return range(count) if count <= limit else np.linspace(0, count - 1, limit).round().astype(int).tolist()


def _strays(inventory: Inventory) -> Iterator[str]:
    """Return a line for every sample whose label is beyond the classes."""
    if inventory.labels is None:
        return
    count = len(inventory.classes)
    for index in np.flatnonzero(inventory.labels >= count):
        label = inventory.labels[index]
        yield f"{inventory.name(index)}: label {label}, but there are {count} classes; labels count from 0"


def _differences(inventories: tuple[Inventory, Inventory]) -> Iterator[str]:
    """Return a line for every class that occurs in one split only, or in none."""
    counts = [inventory.counts() for inventory in inventories]
    has = [np.zeros(0, bool) if of_split is None else of_split > 0 for of_split in counts]
    explained: set[int] = set()  # by the line of the other class of a pair
    for here, there in ((1, 0), (0, 1)):
        inventory = inventories[here]
        candidates = {inventory.class_name(label): label for label in np.flatnonzero(has[there] & ~has[here]).tolist()}
        for label in np.flatnonzero(has[here] & ~has[there]).tolist():
            if label in explained:
                continue
            name = inventory.class_name(label)
            near = None if name == f"class {label}" else nearest(name, candidates)
            if near is not None:
                explained.add(candidates[near])
                equal = unicodedata.normalize("NFC", near) == unicodedata.normalize("NFC", name)
                form = ", the same letters in other bytes (Unicode NFC and NFD)" if equal else ""
                yield f"{SPLITS[here]}/{name}: {SPLITS[there]} has {near}{form}"
            else:
                yield f"{SPLITS[here]}/{name}: {SPLITS[there]} has no sample of it ({_samples(inventory, label)})"
    if not inventories[0].may_miss:
        for label in np.flatnonzero(~has[0] & ~has[1]):
            yield f"{inventories[0].class_name(label)}: no sample in train or val (label {label})"


def _look_alike(classes: Sequence) -> list[str]:
    """Return names that differ by case, underscores or the form of their letters alone: `Cat and cat`."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in () if isinstance(classes, range) else dict.fromkeys(classes):
        groups[unicodedata.normalize("NFKC", name).casefold().replace("_", " ").strip()].append(name)
    return [" and ".join(names) for names in groups.values() if len(names) > 1]


def _samples(inventory: Inventory, label: int) -> str:
    assert inventory.labels is not None
    indices = np.flatnonzero(inventory.labels == label)
    first = inventory.name(int(indices[0]))
    return f"label {label}: {first} alone" if len(indices) == 1 else f"label {label}: {len(indices)} samples"


def _singles(inventory: Inventory) -> list[int]:
    counts = inventory.counts() if inventory.labels is not None else None
    return [] if counts is None else np.flatnonzero(counts == 1).tolist()


def _summary(train: Inventory, val: Inventory, limit: str) -> str:
    """Return `train 640 (80/80/80 per class: min/median/max), val 160 (20/20/20), 8 classes`, and what was left out."""
    parts = []
    for title, inventory in zip(SPLITS, (train, val)):
        counts, text = inventory.counts(), f"{title} {inventory.samples}"
        if inventory.labels is not None and counts is not None and len(counts):
            numbers = f"{counts.min()}/{np.median(counts):g}/{counts.max()}"
            text += f" ({numbers} per class: min/median/max)" if title == "train" else f" ({numbers})"
        parts.append(text)
    parts.append(f"{len(train.classes)} classes")
    if train.singles_are_normal and (single := _singles(train)):
        parts.append(f"{len(single)} of them with one sample")
    return "; ".join([", ".join(parts), *filter(None, [train.uncounted, limit])])


def _table(train: Inventory, val: Inventory) -> str:
    left, right = train.counts(), val.counts()
    if left is None:
        return ""
    file = io.StringIO()
    columns = [column.tolist() for column in (left, right) if column is not None]
    rows = [[label, train.class_name(label), *row] for label, row in enumerate(zip(*columns))]
    csv_files.write(file, [["label", "class", "train"] + ([] if right is None else ["val"]), *rows])
    return file.getvalue()


def _first(names: Sequence[str]) -> str:
    """Return how many names there are, and the first ones: `7 (a, b, c ...)`."""
    return f"{len(names)} ({', '.join(names[:MAX_NAMED])}{' ...' if len(names) > MAX_NAMED else ''})"


def _named(inventory: Inventory, chosen: np.ndarray) -> str:
    """Return how many classes are chosen, bool (classes,), and the first ones."""
    return _first([inventory.class_name(label) for label in np.flatnonzero(chosen).tolist()])


def _base_name(inventory: Inventory, index: int) -> str:
    return inventory.name(index).rpartition("/")[2]
