"""Classes that one split has and the other has not, and classes without any sample."""

import difflib
from collections.abc import Sequence

import numpy as np

from zoo.data.audit.inventory import Inventory

MAX_LISTED = 10  # problems in a message
SPLITS = ("train", "val")


def problems(train: Inventory, val: Inventory) -> list[str]:
    """Return a line for every class that a split lacks, such as `val/bike: train has bikes`.

    A training split is compared with its validation split where both have labels; otherwise it is looked at alone.
    """
    counts = train.counts()
    if counts is None:
        return []
    lines = _strays(train)
    if val.labels is not None and train.labels is not None:
        return lines + _strays(val) + _differences((train, val))
    if train.may_miss:
        return lines
    what = "pixel in a training mask" if train.labels is None else "training sample"
    return lines + [f"{train.class_name(label)}: no {what} (label {label})" for label in np.flatnonzero(counts == 0)]


def singles(inventory: Inventory) -> list[int]:
    """Return the labels that a single sample has."""
    counts = inventory.counts() if inventory.labels is not None else None
    return [] if counts is None else np.flatnonzero(counts == 1).tolist()


def unseen(train: Inventory, val: Inventory) -> list[str]:
    """Return the classes that have pixels in the training masks and none in the validation masks."""
    if train.pixels is None or val.pixels is None:
        return []
    return [train.class_name(label) for label in np.flatnonzero((train.pixels > 0) & (val.pixels == 0)).tolist()]


def shorten(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many there are beyond them."""
    more = len(lines) - MAX_LISTED
    return [*lines[:MAX_LISTED], *([f"and {more} more"] if more > 0 else [])]


def _strays(inventory: Inventory) -> list[str]:
    """Return a line for every sample whose label is beyond the classes."""
    if inventory.labels is None:
        return []
    count = len(inventory.classes)
    return [
        f"{inventory.name(index)}: label {inventory.labels[index]}, but there are {count} classes; labels count from 0"
        for index in np.flatnonzero(inventory.labels >= count)
    ]


def _differences(inventories: tuple[Inventory, Inventory]) -> list[str]:
    """Return a line for every class that occurs in one split only, or in none."""
    lines, counts = [], [inventory.counts() for inventory in inventories]
    has = [np.zeros(0, bool) if of_split is None else of_split > 0 for of_split in counts]
    explained: set[int] = set()  # by the line of the other class of a pair
    for here, there in ((1, 0), (0, 1)):
        inventory = inventories[here]
        lacking = np.flatnonzero(has[here] & ~has[there])
        candidates = {inventory.class_name(label): label for label in np.flatnonzero(has[there] & ~has[here]).tolist()}
        for label in lacking.tolist():
            if label in explained:
                continue
            name, near = inventory.class_name(label), None
            if name != f"class {label}":
                near = nearest(name, candidates)
            if near is not None:
                explained.add(candidates[near])
                lines.append(f"{SPLITS[here]}/{name}: {SPLITS[there]} has {near}")
            else:
                lines.append(
                    f"{SPLITS[here]}/{name}: {SPLITS[there]} has no sample of it ({_samples(inventory, label)})"
                )
    if not inventories[0].may_miss:
        neither = np.flatnonzero(~has[0] & ~has[1])
        lines += [f"{inventories[0].class_name(label)}: no sample in train or val (label {label})" for label in neither]
    return lines


def nearest(name: str, candidates: dict[str, int]) -> str | None:
    """Return the candidate whose spelling is most like a name, whatever the case; None if none is."""
    folded = {candidate.casefold(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def _samples(inventory: Inventory, label: int) -> str:
    assert inventory.labels is not None
    indices = np.flatnonzero(inventory.labels == label)
    first = inventory.name(int(indices[0]))
    return f"label {label}: {first} alone" if len(indices) == 1 else f"label {label}: {len(indices)} samples"
