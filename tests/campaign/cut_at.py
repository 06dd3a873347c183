"""train.py in a process that also writes what power cuts at planned moments would leave of its run.

python -m tests.campaign.cut_at PLAN ARGUMENTS...

A file is as it was when it was last synced (fsync), and a folder has the names that it had when it was last synced.
What came later may have reached the disk or not: names in their order, bytes up to any position, with or without the
right content. That is what POSIX promises, and less than what most file systems do.
"""

import contextlib
import dataclasses
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REQUIRED, COUNT = "required.json", "count.json"
CHANGES = ("open", "os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "shutil.rmtree")  # audit events
LOST, EMPTY, TRUNCATED, MIXED = (
    "all that was not synced is lost",
    "names are kept, data are zeros",
    "names are kept, data are cut off",
    "any mixture",
)
MODES = (LOST, EMPTY, TRUNCATED, MIXED)


@dataclasses.dataclass(frozen=True)
class Plan:
    """When which power cuts are simulated.

    Attributes:
        root: folder in which the run's folder, `run`, is.
        out: receives a folder for each cut, by its number: what is left of the root in `left`, and the number of
            updates whose checkpoint has to be there; and the number of changes in all.
        cuts: numbers of changes of files before which to cut.
        mode: one of MODES.
        fault: Python statement to execute first; plants a fault, to show that it is noticed.
    """

    root: str
    out: str
    cuts: Sequence[int]
    mode: str
    fault: str = ""


class Entry(NamedTuple):
    """What a name in a folder stands for: a file or folder by its number, or a link by its target."""

    number: int
    target: str | None = None


Listing = dict[str, Entry]


class Disk:
    """What has been synced below a folder, and what has not.

    Every file is kept open, so that no number of a file is used twice, and removed files can still be read.
    """

    def __init__(self, root: Path):
        self._root = root
        self._open: dict[int, int] = {}  # number -> descriptor
        self._synced: dict[int, bytes] = {}  # of files
        self._listings: dict[int, list[Listing]] = {}  # of folders: the synced one, then later ones
        self._number = os.stat(root).st_ino
        self._scan(str(root))
        self._listings = {number: found[-1:] for number, found in self._listings.items()}  # all is on the disk so far
        self._synced = {number: self._content(number) for number in self._open if number not in self._listings}

    def look(self) -> None:
        """Note new names."""
        self._scan(str(self._root))

    def sync(self, descriptor: int) -> None:
        """Note that a file or folder has been synced."""
        number = os.fstat(descriptor).st_ino
        if number in self._listings:
            self._listings[number] = [self._listings[number][-1]]
        elif number in self._open:
            self._synced[number] = self._content(number)

    def restore(self, target: Path, mode: str, rng: random.Random) -> None:
        """Write what a power cut now would leave of the folder."""
        self._restore(self._number, target, mode, rng)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def _scan(self, path: str) -> None:
        number, listing = os.stat(path).st_ino, Listing()
        with os.scandir(path) as entries:
            found = list(entries)
        for entry in found:
            if entry.is_symlink():
                listing[entry.name] = Entry(0, os.readlink(entry.path))
                continue
            with contextlib.suppress(FileNotFoundError):  # removed by another thread
                child = entry.inode()
                if child not in self._open:
                    self._open[child] = os.open(entry.path, os.O_RDONLY)
                listing[entry.name] = Entry(child)
                if entry.is_dir():
                    self._scan(entry.path)
        known = self._listings.setdefault(number, [{}])
        if known[-1] != listing:
            known.append(listing)

    def _restore(self, number: int, target: Path, mode: str, rng: random.Random) -> None:
        listings = self._listings[number]
        index = {LOST: 0, MIXED: rng.randrange(len(listings))}.get(mode, len(listings) - 1)
        target.mkdir()
        for name, entry in sorted(listings[index].items()):
            if entry.target is not None:
                (target / name).symlink_to(entry.target)
            elif entry.number in self._listings:
                self._restore(entry.number, target / name, mode, rng)
            else:
                (target / name).write_bytes(self._after_cut(entry.number, mode, rng))

    def _after_cut(self, number: int, mode: str, rng: random.Random) -> bytes:
        """Return what a power cut leaves of a file."""
        synced, now = self._synced.get(number, b""), self._content(number)
        if synced == now or mode == LOST:
            return synced
        first = len(synced) if now.startswith(synced) else 0  # byte that was not synced
        how = rng.choice((LOST, EMPTY, TRUNCATED, "")) if mode == MIXED else mode
        if how == LOST:
            return synced
        if how == EMPTY:
            return now[:first] + bytes(len(now) - first)
        return now[: rng.randint(first, len(now))] if how == TRUNCATED else now

    def _content(self, number: int) -> bytes:
        descriptor = self._open[number]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


@contextlib.contextmanager
def recorded(root: Path, cuts: Collection[int], save: Callable[[int, Disk], None]) -> Iterator[Callable[[], int]]:
    """Count the changes of files below a folder, and call `save` just before some of them.

    Args:
        root: the folder.
        cuts: numbers of changes before which a power cut is simulated.
        save: called with such a number and the state of the disk.

    Yields:
        A function that returns the number of changes so far.
    """
    disk, lock, count, active = Disk(root), threading.RLock(), 0, True
    fsync, busy = os.fsync, set[int]()  # threads that write what a cut leaves

    def change() -> None:
        nonlocal count
        busy.add(threading.get_ident())
        disk.look()
        if count in cuts:
            save(count, disk)
        count += 1
        busy.discard(threading.get_ident())

    def observe(event: str, arguments: tuple[Any, ...]) -> None:
        if not active or event not in CHANGES or threading.get_ident() in busy:
            return
        path = arguments[1 if event in ("os.symlink", "os.rename") else 0]
        if not isinstance(path, str | os.PathLike) or not os.path.abspath(os.fspath(path)).startswith(str(root)):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        with lock:
            change()

    def observed_fsync(file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        with lock:
            change()
            fsync(descriptor)
            disk.look()
            disk.sync(descriptor)

    sys.addaudithook(observe)
    os.fsync = observed_fsync
    try:
        yield lambda: count
    finally:
        active, os.fsync = False, fsync
        disk.close()


def main(text: str, arguments: list[str]) -> int:
    plan = Plan(**json.loads(text))
    root, out = Path(plan.root), Path(plan.out)

    def save(number: int, disk: Disk) -> None:
        folder = out / str(number)
        folder.mkdir()
        disk.restore(folder / "left", plan.mode, random.Random(number))
        (folder / REQUIRED).write_text(json.dumps(saved_step(root / "run")))

    from zoo import cli

    exec(plan.fault, {})
    with recorded(root, plan.cuts, save) as count:
        code = cli.main(["train", *arguments])
    (out / COUNT).write_text(json.dumps(count()))
    return code


def saved_step(run: Path) -> int:
    """Return the step of the last checkpoint whose saving has ended, 0 without one."""
    link = run / "checkpoints" / "last"
    return int(link.readlink().name.removeprefix("step-")) if link.is_symlink() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
