"""Lists of samples: text files with a path and a label per line, or one folder per class."""

import io
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zoo.data import sources
from zoo.data.errors import Option, UserError, parsing, similar_name
from zoo.data.formats import regular
from zoo.data.formats.file_names import VIDEO_EXTENSIONS, is_hidden

ANIMATIONS = (".gif",)  # are clips where there is no video
# Format strings of the names of numbered frames; others may name attributes, or ask for names without an end.
FRAME_TEMPLATE = re.compile(r"[^{}]*\{0?(:0?\d{0,2}d?)?\}[^{}]*")
MAX_EXTENSIONS = 8  # of ignored files in a message
MAX_CLASSES = 1_000_000  # that are named from a list; face sets, which may have more, are read elsewhere
MAX_PATH = 255  # characters of a line that is no cause for suspicion
MAX_DIGITS = 18  # of a number, which fits into int64
MAX_QUOTED = 200  # characters of a malformed line in a message
FREE_LINES, BYTES_PER_LINE = 500_000, 24  # limit of a list's lines: the first, and one more per so many bytes


class Span(NamedTuple):
    """A part of a video, from `start` on and before `end`, in seconds or in frames."""

    start: float
    end: float
    unit: Literal["s", "frames"] = "s"

    def __str__(self) -> str:
        return f"{self.start:g}-{self.end:g}{'' if self.unit == 'frames' else ' s'}"


@dataclass(frozen=True, slots=True)
class LabeledPath:
    """A labeled file, a part of one, or a labeled folder of `frames` numbered images, relative to the set's root."""

    path: str
    label: int
    frames: int | None = None
    span: Span | None = None

    @property
    def name(self) -> str:
        return self.path if self.span is None else f"{self.path} {self.span}"


def read_list(path: str, suffix: str = "", folders: bool = True, notes: list[str] | None = None) -> list[LabeledPath]:
    """Read lines `relpath label` (files) or, if `folders`, `relpath num_frames label`; paths may contain blanks.

    A list is one of frame folders if every line ends in two integers.
    """
    line_format = "`path label` or `path num_frames label`" if folders else "`path label`"
    lines = read_lines(path, "this list")
    check_widths(path, lines.values())
    if not lines:
        raise UserError(f"{path}: the list is empty; a line reads {line_format}, the path relative to data.root")
    has_frames = folders and _lists_frame_folders(path, lines, suffix)
    columns = 2 if has_frames else 1
    entries = list[LabeledPath]()
    for number, line in lines.items():
        # Split from the right: folder names of Kinetics classes may contain blanks.
        words = line.lstrip("\ufeff").strip().rsplit(None, columns)
        if len(words) <= columns or not all(map(is_number, words[1:])):
            raise UserError(
                f"{path}:{number}: expected {line_format} with label an integer from 0, got {line[:MAX_QUOTED]!r}"
            )
        entries.append(LabeledPath(words[0] + suffix, int(words[-1]), int(words[1]) if has_frames else None))
    check_repeated(path, zip(lines, ((entry.path, entry.label) for entry in entries)), notes)
    return entries


def check_repeated(path: str, lines: Iterable[tuple[int, tuple[str, object]]], notes: list[str] | None) -> None:
    """Refuse a list that gives a file two labels, and note that it repeats lines.

    Args:
        lines: by number, the file and its label.
    """
    first, repeated = dict[str, tuple[object, int]](), list[str]()
    for number, (name, label) in lines:
        known, other = first.setdefault(os.path.normpath(name), (label, number))
        if known != label:
            raise UserError(f"{path}:{number}: {name} has label {label} here and {known} in line {other}; remove one")
        if other != number:
            repeated.append(name)
    if repeated and notes is not None:
        notes.append(
            f"warning: {path}: {len(repeated)} lines repeat an earlier one, such as that of {repeated[0]}; each counts"
        )


def check_same_labels(lists: Iterable[Iterable[LabeledPath]]) -> None:
    """Refuse lists of several splits that number the same class folders in different ways.

    Folders say nothing unless each has one label, and each label one folder, in every list.
    """
    known: dict[str, int] = {}
    for entries in lists:
        pairs = {(os.path.basename(os.path.dirname(entry.path)), entry.label) for entry in entries}
        labels = dict(sorted(pairs))
        if not len(pairs) == len(labels) == len(set(labels.values())):
            return
        for folder, label in labels.items():
            if known.setdefault(folder, label) != label:
                raise UserError(
                    f"the lists give the files in {folder} the label {known[folder]} in one split and {label} in "
                    "another; write them with the same labels"
                )


def read_lines(path: str, subject: str) -> dict[int, str]:
    """Return the lines of a text file that are not blank, stripped, by number.

    Args:
        path: the file, in UTF-8.
    """
    with parsing(f"{path}: cannot read {subject}", "it should be a text file in UTF-8 with one entry per line"):
        text = regular.read(path).decode("utf-8-sig")
        if text.count("\n") > FREE_LINES + len(text) // BYTES_PER_LINE:
            raise ValueError("it has too many short lines")
        if "\0" in text:
            raise ValueError(f"line {text[: text.index(chr(0))].count(chr(10)) + 1} has a byte that is zero")
        return {number: line.strip() for number, line in enumerate(io.StringIO(text, newline=None), 1) if line.strip()}


def check_widths(path: str, lines: Collection[str] | Collection[bytes]) -> None:
    """Raise UserError for a line so long that a table of all paths would take much more memory than the list."""
    longest = max(map(len, lines), default=0)
    if longest > MAX_PATH and longest * len(lines) > max(regular.FREE_BYTES, regular.EXPANSION * sum(map(len, lines))):
        raise UserError(f"{path}: a line of {longest} characters is too long for a path; correct the list")


def check_inside(path: str, names: Iterable[str], allowed: bool) -> None:
    """Check the paths that a list names: it comes with a data set, and may not name what lies elsewhere.

    Args:
        names: the paths. Links within the folder may lead anywhere.
        allowed: whether paths may lead anywhere, too.
    """
    for name in () if allowed else names:
        if name.startswith("/") or (os.pardir in name and os.pardir in name.split("/")):
            raise UserError(
                f"{path}: {name} may lead out of data.root; use paths below it, or, if you trust this list, let them "
                "pass with ",
                Option("data.allow_outside_root", True),
            )


def is_number(word: str) -> bool:
    """Return whether a word is an integer from 0 that fits into int64."""
    return word.isdecimal() and len(word) <= MAX_DIGITS


def _lists_frame_folders(path: str, lines: dict[int, str], suffix: str) -> bool:
    """Return whether all lines, by number, end in two integers. Raises UserError if only some of them do."""
    has_frames = {}
    for number, line in lines.items():
        words = line.split()
        has_frames[number] = len(words) >= 3 and is_number(words[-2]) and is_number(words[-1])
    if all(has_frames.values()):
        return True
    if any(has_frames.values()) and not suffix:
        minority = sum(has_frames.values()) * 2 <= len(lines)
        number = next(number for number, value in has_frames.items() if value == minority)
        raise UserError(
            f"{path}:{number}: {lines[number]!r}: some lines of this list end in `num_frames label` and others in a "
            "label alone; write all lines in the same format"
        )
    return False


def _refuse_folder(error: OSError) -> None:
    """Raise UserError for a folder that exists and cannot be read: its files would be left out without a word."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise UserError(f"{error.filename}: cannot be read ({error.strerror}); make this folder readable, or remove it")


def walk(folder: str, seen: dict[tuple[int, int], str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and those below with the names of their files, sorted, without hidden ones; links are followed.

    Args:
        seen: what earlier walks have read; extended.
    """
    if sources.locate(folder):
        yield from _walk_source(folder)
        return
    seen = {} if seen is None else seen
    for path, subfolders, files in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        status = os.stat(path)
        known = seen.setdefault((status.st_dev, status.st_ino), path)
        if known != path:
            raise UserError(f"{path}: leads to {known}, which is read already; remove this link")
        subfolders[:] = sorted(name for name in subfolders if not is_hidden(name))
        yield path, sorted(name for name in files if not is_hidden(name))


def _walk_source(folder: str) -> Iterator[tuple[str, list[str]]]:
    names = {name: is_folder for name, is_folder in sources.names(folder).items() if not is_hidden(name)}
    yield folder, [name for name, is_folder in names.items() if not is_folder]
    for name in [name for name, is_folder in names.items() if is_folder]:
        yield from _walk_source(os.path.join(folder, name))


def read_folders(
    root: str,
    split: str,
    classes: Sequence[str],
    extensions: tuple[str, ...] = VIDEO_EXTENSIONS,
    notes: list[str] | None = None,
) -> list[LabeledPath]:
    """List every file with one of the extensions below <root>/<split>/<class>/, labeled by its place in `classes`.

    Args:
        extensions: in lower case.
        notes: receives a message on files with other extensions, or beside the class folders.
    """
    others, seen = Counter[str](), dict[tuple[int, int], str]()
    label_of: dict[str, int] = {}
    for label, name in enumerate(classes):
        label_of[name] = label
        label_of.setdefault(normalize_name(name), label)
    entries = []
    _, beside = next(walk(os.path.join(root, split)), ("", []))
    others.update(_kind(file) for file in beside if split or file.lower().endswith(extensions))  # root has lists, too
    for name in class_folders(root, split):
        class_label = label_of.get(name, label_of.get(normalize_name(name)))
        if class_label is None:
            raise UserError(
                f"{os.path.join(root, split, name)}: this folder is none of the {len(classes)} classes; "
                "rename it, or give the class names with ",
                Option("data.names", "FILE"),
                " (one per line)",
                similar_name(name, classes),
            )
        for folder, files in walk(os.path.join(root, split, name), seen):
            relative = os.path.relpath(folder, root)
            wanted = [file for file in files if file.lower().endswith(extensions)]
            entries += [LabeledPath(os.path.join(relative, file), class_label) for file in wanted]
            others.update(map(_kind, set(files).difference(wanted)))
    if others and notes is not None:
        listed = ", ".join(f"{count} {extension}" for extension, count in others.most_common(MAX_EXTENSIONS))
        place = os.path.join(root, split)
        notes.append(f"{place}: {others.total()} files of other kinds or in no class folder are ignored: {listed}")
    return entries


def _kind(file: str) -> str:
    return os.path.splitext(file)[1].lower() or file


def class_folders(root: str, split: str) -> list[str]:
    """Return the sorted names of the visible folders in <root>/<split>; none if that is not a folder."""
    if sources.locate(root):
        names = sources.names(os.path.join(root, split))
        return [name for name, is_folder in names.items() if is_folder and not is_hidden(name)]
    try:
        entries = [entry for entry in os.scandir(os.path.join(root, split)) if not is_hidden(entry.name)]
    except OSError as error:
        _refuse_folder(error)
        return []
    for entry in entries:
        if entry.is_symlink() and not os.path.exists(entry.path):
            raise UserError(f"{entry.path}: this link leads nowhere; mend it, or remove it")
    return sorted(entry.name for entry in entries if entry.is_dir())


def class_names_from_folders(entries: Sequence[LabeledPath]) -> tuple[str, ...]:
    """Name classes by their folders if every label of a list has one folder of its own, else `class 7`."""
    folders: dict[int, set[str]] = {}
    for entry in entries:
        folders.setdefault(entry.label, set()).add(os.path.basename(os.path.dirname(entry.path)))
    count = max(folders) + 1
    if count > MAX_CLASSES:
        entry = max(entries, key=lambda entry: entry.label)
        raise UserError(f"{entry.path}: its label {count - 1} is beyond {MAX_CLASSES} classes; correct the list")
    names = [next(iter(folders[label])) if len(folders.get(label, ())) == 1 else "" for label in range(count)]
    if len(set(names) - {""}) < len(folders):
        names = [""] * count
    return tuple(name or f"class {label}" for label, name in enumerate(names))


def normalize_name(name: str) -> str:
    """Write a class name as mit-han-lab names folders: without quotes and brackets, blanks replaced by underscores."""
    return "".join(letter for letter in name if letter not in "\"'()").replace(" ", "_")
