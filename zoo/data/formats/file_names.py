"""What the name of a file, folder or archive says: its kind, its split, or that it belongs to the system."""

import os
import re

IMAGE_EXTENSIONS = (
    *(".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)
VIDEO_EXTENSIONS = (
    *(".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".wmv", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".flv", ".3gp"),
    *(".ogv", ".h264", ".264"),
)
SYSTEM_NAMES = (
    *("Thumbs.db", "desktop.ini", "__MACOSX", "lost+found"),
    *("$RECYCLE.BIN", "System Volume Information", "#recycle"),
)
SPLIT_NAMES = {"train": ("train",), "val": ("val", "valid", "validation")}
TEST = "test"
WORD = r"(?:^|[^a-z])(?:{})(?:[^a-z]|$)"
SPLIT_WORDS = {
    "train": re.compile(WORD.format("train(?:ing)?(?:set|data)?")),
    "val": re.compile(WORD.format("(?:val|valid|validation|dev|eval)(?:set|data)?")),
    TEST: re.compile(WORD.format("test(?:ing)?(?:set|data)?")),
}


def is_hidden(name: str) -> bool:
    """Return whether a file or folder belongs to the system, such as thumbnails of a network storage."""
    return name.startswith((".", "@")) or name in SYSTEM_NAMES


def split_of(name: str) -> str | None:
    """Return the split that the name of a folder states: `train`, `val` or `test`, as in seg_train or TestSet."""
    found = [split for split, words in SPLIT_WORDS.items() if words.search(name.lower())]
    return found[0] if len(found) == 1 else None


def unsplit(path: str) -> str:
    """Return the name of a file without that of a split: instances_2017.json of instances_val2017.json."""
    return re.sub("train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?", "", os.path.basename(path).lower())
