"""The packs of all chunks joined into insightface's format: train.rec, train.idx and property."""

import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO

from zoo.data import durable
from zoo.data.packs import records
from zoo.data.preparing import job as jobs
from zoo.data.preparing import work
from zoo.data.preparing.journal import read_entries
from zoo.data.preparing.plan import Plan

NAME, INDEX, PROPERTY = "train.rec", "train.idx", "property"
PART = "train.rec.part"
BLOCK = 1 << 20


def chunk_pack(out: str, number: int) -> str:
    """Return the path of the complete pack of a chunk."""
    return os.path.join(out, jobs.WORK, f"{number:05d}.complete.rec")


def begun(out: str) -> bool:
    """Return whether joining has begun, which removes the packs of the chunks."""
    return os.path.exists(os.path.join(out, jobs.WORK, PART)) or os.path.exists(os.path.join(out, NAME))


def join(out: str, plan: Plan) -> None:
    """Append the packs of all chunks and remove each, then add the records of the identities.

    A pack is removed when its copy is on disk, so this may be killed at any time and called again.
    """
    if os.path.exists(os.path.join(out, NAME)):
        return
    journals = [read_entries(work.journal_path(out, chunk.number)) for chunk in plan.chunks]
    part = os.path.join(out, jobs.WORK, PART)
    offsets: list[int] = []
    start = 0
    with open(part, "ab") as target:
        joined = os.path.getsize(part)
        for chunk, entries in zip(plan.chunks, journals):
            end = start + (entries[-1]["end"] if entries else 0)
            if end > joined:
                target.truncate(start)
                _append(target, chunk_pack(out, chunk.number))
            offsets += [start + offset for entry in entries for offset in entry.get("at", ())]
            start = end
        target.truncate(start)
        images = [entry for entries in journals for entry in entries if "bad" not in entry]
        first_key, further = _identity_records([entry["label"] for entry in images], len(plan.classes))
        keys = [*range(first_key, first_key + len(offsets)), *further]
        for record in further.values():
            offsets.append(start)
            target.write(record)
            start += len(record)
        target.flush()
        os.fsync(target.fileno())
    lines = "".join(f"{key}\t{offset}\n" for key, offset in zip(keys, offsets))
    jobs.write_file(os.path.join(out, INDEX), lines)
    if images:
        width, height = images[0]["size"]
        identities = max(len(plan.classes), 1 + max(entry["label"] for entry in images))
        jobs.write_file(os.path.join(out, PROPERTY), f"{identities},{height},{width}\n")
    os.rename(part, os.path.join(out, NAME))
    durable.sync_folder(out)


def _append(target: BinaryIO, path: str) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, target, BLOCK)
    target.flush()
    os.fsync(target.fileno())
    os.remove(path)


def _identity_records(labels: Sequence[int], identities: int) -> tuple[int, dict[int, bytes]]:
    """Return the key of the first image, and by key the records without an image, in the order of the file.

    The images of an identity have consecutive keys, which its record states; record 0 states the keys after the last
    image and after the last identity. Where the images are not in the order of their labels there are no such records.
    """
    if any(label > following for label, following in pairwise(labels)):
        return 0, {}
    counts = [0] * max(identities, labels[-1] + 1 if labels else 0)
    for label in labels:
        counts[label] += 1
    further, key = {}, 1
    end = 1 + len(labels)
    for number, count in enumerate(counts):
        further[end + number] = records.record(records.labels_payload(key, key + count))
        key += count
    further[0] = records.record(records.labels_payload(end, end + len(counts)))
    return 1, further
