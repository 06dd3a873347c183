"""The work of a preparation in chunks of consecutive samples: the unit of work of a process, and one shard of a pack.

Chunks depend on the listing alone, never on the number of processes. The plan is stored before the work begins, so that
an interrupted preparation goes on with the same files in the same order and need not ask the file system again.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TextIO

from zoo.data.preparing import job as jobs
from zoo.data.preparing import listing
from zoo.data.preparing.listing import Item, Missing, Sample

PLAN = "plan.json"
MIN_CHUNK, MAX_CHUNK = 16 << 20, 1 << 30  # bytes of source files
CHUNKS = 64  # wanted, to keep many processes busy
MAX_CHUNK_FILES = {"files": 256, "pack": 1 << 16}  # by form; the other forms take long per file:
MAX_ENCODED_FILES = 4096


@dataclass(frozen=True)
class Chunk:
    """A range of samples of one split."""

    number: int
    split: str
    shard: int  # number within the split
    items: int


@dataclass(frozen=True)
class Plan:
    """All chunks, and what is known of the data set as a whole."""

    media: str
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    missing: tuple[Missing, ...]
    chunks: tuple[Chunk, ...]

    def shards(self, split: str) -> int:
        """Return the number of chunks of a split."""
        return sum(chunk.split == split for chunk in self.chunks)


def items_path(out: str, number: int) -> str:
    return os.path.join(out, jobs.WORK, f"{number:05d}.items.jsonl")


def shard_name(plan: Plan, chunk: Chunk) -> str:
    """Return the name of the pack of a chunk."""
    return f"{chunk.split}-{chunk.shard:05d}-of-{plan.shards(chunk.split):05d}.rec"


def make(out: str, job: jobs.Job, found: listing.Listing) -> Plan:
    """List the files, write the items of every chunk and, at last, the plan."""
    samples, notes = listing.unique_samples(found.samples)
    if found.media == "face" and job.form == "pack":
        samples.sort(key=lambda sample: sample.label)  # the format needs the images of an identity together
    listing.check_links(job.root, samples)
    items: list[Item] = []
    missing: list[Missing] = []
    for entry in listing.stat_samples(job.root, samples):
        if isinstance(entry, Missing):
            missing.append(entry)
        else:
            items.append(entry)
    chunks: list[Chunk] = []
    for group in _group(items, job.form):
        split = group[0].sample.split
        chunk = Chunk(len(chunks), split, sum(other.split == split for other in chunks), len(group))
        lines = [json.dumps([*item.sample, *item[1:]]) + "\n" for item in group]
        jobs.write_file(items_path(out, chunk.number), "".join(lines))
        chunks.append(chunk)
    plan = Plan(found.media, found.classes, found.notes + notes, tuple(missing), tuple(chunks))
    jobs.write_file(os.path.join(out, jobs.WORK, PLAN), json.dumps(asdict(plan)))
    return plan


def load(out: str) -> Plan | None:
    """Read the plan of an interrupted preparation, None if it had not come so far."""
    try:
        with open(os.path.join(out, jobs.WORK, PLAN), encoding="utf-8") as file:
            stored = json.load(file)
    except FileNotFoundError:
        return None
    return Plan(
        stored["media"],
        tuple(stored["classes"]),
        tuple(stored["notes"]),
        tuple(Missing(*entry) for entry in stored["missing"]),
        tuple(Chunk(**chunk) for chunk in stored["chunks"]),
    )


def read_items(out: str, number: int) -> list[Item]:
    """Read the items of a chunk."""
    with open(items_path(out, number), encoding="utf-8") as file:
        return list(_parse_items(file))


def _parse_items(file: TextIO) -> Iterator[Item]:
    count = len(Sample._fields)
    for line in file:
        values = json.loads(line)
        yield Item(Sample(*values[:count]), *values[count:])


def _group(items: Iterable[Item], form: str) -> Iterator[list[Item]]:
    """Cut the items where the split changes or a chunk is full."""
    items = list(items)
    records = sum(item.sample.key >= 0 for item in items)  # the size of such an item is that of the whole pack
    sizes = [item.size // records if item.sample.key >= 0 else item.size for item in items]
    limit = min(MAX_CHUNK, max(MIN_CHUNK, sum(sizes) // CHUNKS))
    max_files = MAX_CHUNK_FILES.get(form, MAX_ENCODED_FILES)
    group: list[Item] = []
    size = 0
    for item, item_size in zip(items, sizes):
        if group and (item.sample.split != group[0].sample.split or size >= limit or len(group) >= max_files):
            yield group
            group, size = [], 0
        group.append(item)
        size += item_size
    if group:
        yield group
