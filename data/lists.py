"""Lists of clips as people have them: mit-han-lab's and PaddleVideo's text files, or a folder per class."""
import os
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from data.errors import UserError

VIDEO_ENDINGS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v")


@dataclass(frozen=True)
class Clip:
    """One labelled clip: a video file, or a folder of `frames` numbered pictures. path is relative to the root."""
    path: str
    label: int
    frames: Optional[int] = None


def read_list(path: str, suffix: str = "") -> List[Clip]:
    """Read `relpath label` (videos) or `relpath num_frames label` (pictures); the path may hold blanks.

    A list is taken as pictures if every line ends in two integers. `suffix` is put behind every path.
    Raises UserError naming file and line.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [(number, line.split()) for number, line in enumerate(file, 1) if line.strip()]
            file.seek(0)
            texts = dict(enumerate(file, 1))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read this list: {error}") from None
    if not lines:
        raise UserError(f"{path}: the list is empty; a line reads `relative/path.mp4 label` "
                        "or `relative/folder num_frames label`")
    in_pictures = {number: len(words) >= 3 and words[-2].isdecimal() and words[-1].isdecimal()
                   for number, words in lines}
    pictures = all(in_pictures.values())
    if any(in_pictures.values()) and not pictures and not suffix:
        few = sum(in_pictures.values()) * 2 <= len(lines)
        number = next(number for number, value in in_pictures.items() if value == few)
        raise UserError(f"{path}:{number}: {texts[number].strip()!r}: some lines of this list end in "
                        "`num_frames label` and others in a label alone; write all of them in one way")
    clips = []
    for number, words in lines:
        numbers = 2 if pictures else 1
        if len(words) <= numbers or not words[-1].isdecimal():
            raise UserError(f"{path}:{number}: expected `path label` or `path num_frames label` with label an integer "
                            f"from 0, got {texts[number].strip()!r}")
        # Split from the right: folder names of Kinetics classes may hold blanks.
        name = texts[number].lstrip("\ufeff").strip().rsplit(None, numbers)[0]
        clips.append(Clip(name + suffix, int(words[-1]), int(words[-2]) if pictures else None))
    return clips


def read_folders(root: str, split: str, classes: Tuple[str, ...]) -> List[Clip]:
    """Every video below <root>/<split>/<class>/, labelled by `classes`. Raises UserError for a folder not in them."""
    by_name: Dict[str, int] = {}
    for label, name in enumerate(classes):
        by_name[name] = label
        by_name.setdefault(plain(name), label)
    clips = []
    for name in class_folders(root, split):
        label = by_name.get(name, by_name.get(plain(name)))
        if label is None:
            raise UserError(f"{os.path.join(root, split, name)}: this folder is none of the {len(classes)} classes; "
                            "rename it, or give the class names with -o data.names=FILE (one per line)")
        for folder, folders, files in os.walk(os.path.join(root, split, name)):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            clips += [Clip(os.path.relpath(os.path.join(folder, file), root), label)
                      for file in sorted(files) if file.lower().endswith(VIDEO_ENDINGS) and not file.startswith(".")]
    return clips


def class_folders(root: str, split: str) -> List[str]:
    folder = os.path.join(root, split)
    if not os.path.isdir(folder):
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def read_names(path: str) -> Tuple[str, ...]:
    """Class names, one per line, line number (from 0) = label; `label name` lines are understood too."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the class names: {error}") from None
    if not names:
        raise UserError(f"{path}: no class names in this file; write one per line, in the order of the labels")
    pairs = [name.split(None, 1) for name in names]
    if all(len(pair) == 2 and pair[0].isdecimal() for pair in pairs):
        if sorted(int(pair[0]) for pair in pairs) == list(range(len(pairs))):
            names = [name for _, name in sorted((int(number), name) for number, name in pairs)]
    return tuple(names)


def plain(name: str) -> str:
    """A class name as mit-han-lab writes folders: quotes and brackets dropped, blanks to underscores."""
    return "".join(letter for letter in name if letter not in "\"'()").replace(" ", "_")
