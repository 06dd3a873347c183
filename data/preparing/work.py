"""The work on a chunk: every sample once, from where the last process stopped."""

import os
from typing import NamedTuple, Protocol

from zoo.data import durable
from zoo.data.errors import BadSample
from zoo.data.packs import records
from zoo.data.preparing import job as jobs
from zoo.data.preparing import plan as plans
from zoo.data.preparing.examine import FileTrouble, examine
from zoo.data.preparing.journal import Journal, count_entries, read_entries
from zoo.data.preparing.listing import Item


class Counters(Protocol):
    """What the processes tell each other."""

    def begin(self, chunk: int, position: int) -> None:
        """Note which sample of a chunk is worked on, -1 for none."""

    def add(self, done: int, bad: int) -> None:
        """Count samples."""

    def stopped(self) -> bool:
        """Return whether to stop before the next sample."""


class Task(NamedTuple):
    """A chunk to work on.

    Attributes:
        first: Number of its first sample within the split.
        pack: Path of its pack when it is complete, None if nothing is packed.
        skip_unreadable: Count files that vanished, changed or cannot be read as unreadable samples.
    """

    out: str
    job: jobs.Job
    media: str
    chunk: plans.Chunk
    first: int
    pack: str | None
    skip_unreadable: bool


class Stopped(NamedTuple):
    """A file that the work on a chunk stopped at."""

    name: str
    reason: str


def journal_path(out: str, number: int) -> str:
    return os.path.join(out, jobs.WORK, f"{number:05d}.journal.jsonl")


def part_path(out: str, number: int) -> str:
    return os.path.join(out, jobs.WORK, f"{number:05d}.rec")


def done_before(task: Task) -> int:
    """Return how many samples of a chunk are in its journal."""
    return min(count_entries(journal_path(task.out, task.chunk.number)), task.chunk.items)


def run(task: Task, counters: Counters) -> Stopped | None:
    """Work on a chunk until it is done or the counters say stop.

    Returns:
        The file that it stopped at, if any: it is tried again the next time.

    Raises:
        UserError: The result cannot be written.
    """
    if task.pack and os.path.exists(task.pack):
        return None
    number = task.chunk.number
    journal = Journal(journal_path(task.out, number), part_path(task.out, number) if task.pack else None)
    try:
        for item in plans.read_items(task.out, number)[journal.count :]:
            if counters.stopped():
                break
            counters.begin(number, journal.count)
            stopped = _add(task, journal, item, counters)
            if stopped:
                return stopped
        counters.begin(number, -1)
    finally:
        try:
            journal.commit()
        finally:
            journal.close()
    if task.pack and journal.count == task.chunk.items:
        _complete_pack(task)
    return None


def _add(task: Task, journal: Journal, item: Item, counters: Counters) -> Stopped | None:
    """Examine a sample and add it to the journal."""
    try:
        examined = examine(task.job, task.media, item, task.first + journal.count)
        journal.append(examined.properties, examined.records)
        counters.add(1, 0)
    except BadSample as error:
        journal.append({"bad": str(error)}, [])
        counters.add(1, 1)
    except FileTrouble as error:
        if not task.skip_unreadable:
            return Stopped(item.sample.name, str(error))
        journal.append({"bad": str(error)}, [])
        counters.add(1, 1)
    return None


def _complete_pack(task: Task) -> None:
    """Write the index of a pack and give it its name, which marks it as complete."""
    assert task.pack
    number = task.chunk.number
    offsets = [offset for entry in read_entries(journal_path(task.out, number)) for offset in entry.get("at", ())]
    jobs.write_file(f"{os.path.splitext(task.pack)[0]}.idx", records.index_lines(0, offsets))
    os.rename(part_path(task.out, number), task.pack)
    durable.sync_folder(os.path.dirname(task.pack))
