"""The words by which the names of folders, files and archives state a split."""

import os
import re

SPLIT_NAMES = {"train": ("train",), "val": ("val", "valid", "validation")}
TEST = "test"
WORD = r"(?:^|[^a-z])(?:{})(?:[^a-z]|$)"
SPLIT_WORDS = {
    "train": re.compile(WORD.format("train(?:ing)?(?:set|data)?")),
    "val": re.compile(WORD.format("(?:val|valid|validation|dev|eval)(?:set|data)?")),
    TEST: re.compile(WORD.format("test(?:ing)?(?:set|data)?")),
}


def split_of(name: str) -> str | None:
    """Return the split that the name of a folder states: `train`, `val` or `test`, as in seg_train or TestSet."""
    found = [split for split, words in SPLIT_WORDS.items() if words.search(name.lower())]
    return found[0] if len(found) == 1 else None


def unsplit(path: str) -> str:
    """Return the name of a file without that of a split: instances_2017.json of instances_val2017.json."""
    return re.sub("train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?", "", os.path.basename(path).lower())
