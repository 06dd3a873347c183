"""The files of a data set: which samples there are, in the order of the loaders, and what the file system says."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from zoo.data.errors import UserError

STAT_THREADS = 16  # a network file system answers many requests at a time
STAT_BATCH = 1024


class Sample(NamedTuple):
    """A labeled file of a split.

    Attributes:
        path: Relative to the root.
        label: Its class, -1 without classes.
        mask: Path of its mask, "" without one.
        key: Of a record in a pack, -1 for a file of its own.
        offset: Of that record in bytes.
        frames: Number of images of a folder, -1 for a file.
        template: Format string of the names of these images.
        first_frame: Number of the first image.
    """

    split: str
    path: str
    label: int
    mask: str = ""
    key: int = -1
    offset: int = -1
    frames: int = -1
    template: str = ""
    first_frame: int = 0

    @property
    def name(self) -> str:
        """The path, and the key in a pack."""
        return self.path if self.key < 0 else f"{self.path} key {self.key}"

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files of the sample, relative to the root."""
        if self.frames < 0:
            return (self.path, self.mask) if self.mask else (self.path,)
        numbers = range(self.first_frame, self.first_frame + self.frames)
        return tuple(os.path.join(self.path, self.template.format(number)) for number in numbers)


class Item(NamedTuple):
    """A sample and the state of its files when they were listed.

    Attributes:
        size: Bytes, of all files together.
        modified: Latest modification, in nanoseconds.
        problem: Reason why the sample cannot be read, "" if none is known yet.
    """

    sample: Sample
    size: int
    modified: int
    problem: str = ""


class Listing(NamedTuple):
    """All samples of a data set, split after split.

    Attributes:
        media: `video`, `frames` (folders of images), `image`, `pair` or `face`.
        classes: Their names by label.
        notes: Remarks for the user.
    """

    media: str
    samples: list[Sample]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Missing(NamedTuple):
    """A sample of a list whose file does not exist."""

    split: str
    path: str
    label: int


def unique_samples(samples: Iterable[Sample]) -> tuple[list[Sample], tuple[str, ...]]:
    """Drop samples that a list names twice.

    Returns:
        The samples, and remarks for the user.

    Raises:
        UserError: A list gives a file two labels.
    """
    label_of: dict[tuple[str, str, int], int] = {}
    splits_of: dict[tuple[str, int], str] = {}
    unique, repeated, shared = [], 0, 0
    for sample in samples:
        key = (sample.split, sample.path, sample.key)
        if key in label_of:
            if label_of[key] != sample.label:
                raise UserError(
                    f"{sample.path}: the list of {sample.split} names it twice, with the labels {label_of[key]} and "
                    f"{sample.label}; remove one of these lines"
                )
            repeated += 1
            continue
        shared += splits_of.setdefault(key[1:], sample.split) != sample.split
        label_of[key] = sample.label
        unique.append(sample)
    notes = []
    if repeated:
        notes.append(f"{repeated} samples are listed more than once; each is used once")
    if shared:
        notes.append(f"warning: {shared} files are in more than one split")
    return unique, tuple(notes)


def check_links(root: str, samples: Iterable[Sample]) -> None:
    """Check that no folder of the samples is a link to a folder that contains the link. Raises UserError."""
    checked = set()
    for folder in sorted({os.path.dirname(sample.path) for sample in samples}):
        parts = folder.split(os.sep) if folder else []
        for end in range(1, len(parts) + 1):
            path = os.path.join(root, *parts[:end])
            if path in checked:
                continue
            checked.add(path)
            target, parent = os.path.realpath(path), os.path.realpath(os.path.dirname(path))
            if os.path.islink(path) and os.path.commonpath([target, parent]) == target:
                raise UserError(f"{path}: this link leads to {target}, which contains it: an endless loop; remove it")


def stat_samples(root: str, samples: list[Sample]) -> Iterator[Item | Missing]:
    """Ask the file system about every file, in the order of the samples.

    Raises:
        UserError: The file system cannot answer.
    """
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        for start in range(0, len(samples), STAT_BATCH):
            yield from pool.map(lambda sample: _stat_sample(root, sample), samples[start : start + STAT_BATCH])


def _stat_sample(root: str, sample: Sample) -> Item | Missing:
    size, modified, problem = 0, 0, "the list says that it has no frames" if sample.frames == 0 else ""
    for path in sample.files:
        full = os.path.join(root, path)
        try:
            status = os.stat(full)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) or os.path.islink(full):
                problem = _link_problem(full, error)
            elif sample.frames < 0:
                return Missing(sample.split, path, sample.label)
            elif not os.path.isdir(os.path.dirname(full)):
                return Missing(sample.split, sample.path, sample.label)
            else:
                problem = problem or f"{os.path.basename(path)} is missing, the list says {sample.frames} frames"
            continue
        if not stat.S_ISREG(status.st_mode):
            problem = "a folder, not a file" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        size += status.st_size
        modified = max(modified, status.st_mtime_ns)
    return Item(sample, size, modified, problem)


def _link_problem(path: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "a link to a file that does not exist"
    if error.errno == errno.ELOOP:
        return "a link that leads to itself"
    raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable for this user")
