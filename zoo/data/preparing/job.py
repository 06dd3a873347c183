"""A preparation: its settings, the folder that it writes to, and its work in chunks of consecutive samples.

A chunk is the unit of work of a process, of what an interrupt may cost, and one shard of a pack. Chunks depend on the
listing alone, never on the number of processes. The plan is stored before the work begins, so that the same command
goes on with the same files in the same order.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial

from zoo.data import durable, sources
from zoo.data.errors import UserError
from zoo.data.preparing.listing import Listing, Sample

MARK, WORK, LOCK, PLAN = "prepare.json", "work", "lock", "plan.json"
FORMAT, VERSION = "vision-zoo prepared data set", 2
FORMS = {  # form -> media that it applies to, the first one being what is prepared without an option
    "files": ("video", "frames", "image", "pair", "face"),
    "pack": ("video", "frames", "image", "pair", "face"),
    "reencode": ("video",),
    "frames": ("video",),
    "resize": ("image",),
    "raw": ("pair",),
}
MIN_CHUNK, MAX_CHUNK, CHUNKS = 16 << 20, 256 << 20, 64  # bytes of source files; chunks to keep many processes busy
MAX_CHUNK_FILES = {"files": 1 << 14, "pack": 1 << 14}  # by form; the other forms take long per file:
MAX_ENCODED_FILES = 1024
STAT_BLOCK = 1 << 14
STAT_THREADS = 16  # a network file system answers many requests at a time
FRAME_BYTES = 1 << 14  # assumed of a frame in a folder, which nobody asks the file system for


@dataclass(frozen=True)
class Job:
    """Settings that the result depends on.

    Attributes:
        root: Folder of the data set, absolute.
        form: of FORMS; `files` are checked only.
        short_side: Of re-encoded frames and images, in pixels.
        full: Decode every frame of every video.
        lists: Settings of the data set as (name, value), such as ("suffix", ".mp4").
    """

    kind: str
    root: str
    form: str
    short_side: int
    crf: int
    gop: int
    quality: int
    full: bool
    lists: tuple[tuple[str, str | int | float], ...] = ()


@dataclass(frozen=True)
class Chunk:
    """A range of samples of one split."""

    number: int
    split: str
    shard: int  # number within the split
    first: int  # number of its first sample within the split
    items: int


@dataclass(frozen=True)
class Plan:
    """All chunks, and what is known of the data set as a whole; see Listing."""

    media: str
    classes: tuple[str, ...]
    pattern: tuple[str, int]
    missing: tuple[Sample, ...]
    chunks: tuple[Chunk, ...]
    held_out: str = ""

    @cached_property
    def _shards(self) -> Counter[str]:
        return Counter(chunk.split for chunk in self.chunks)

    def shard_name(self, chunk: Chunk) -> str:
        return f"{chunk.split}-{chunk.shard:05d}-of-{self._shards[chunk.split]:05d}.rec"


def claim(out: str, job: Job) -> None:
    """Mark a new or empty folder as this job's, or check that it is already marked so."""
    root, folder = os.path.realpath(job.root), os.path.realpath(out)
    if os.path.commonpath([root, folder]) == root:
        raise UserError(f"--out {out}: lies inside the data set, which is never written to; choose another folder")
    path = os.path.join(out, MARK)
    current = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **asdict(job)}))
    try:
        os.makedirs(out, exist_ok=True)
        if _is_new(out):
            with lock(out):
                if not os.path.exists(path):
                    write_file(path, json.dumps(current, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        stored = None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise UserError(
            f"--out {out}: this folder holds other files, and nothing is ever written over; choose a new folder"
        )
    different = [key for key in current if stored.get(key) != current[key]]
    if different:
        lines = "; ".join(f"{key}: {stored.get(key)!r} there, {current[key]!r} now" for key in different)
        raise UserError(f"--out {out}: another preparation was begun there ({lines}); choose a new folder")


def _is_new(out: str) -> bool:
    """Return whether a folder is empty but for what a program leaves that is killed, or is, at the first moment."""
    work = os.path.join(out, WORK)
    inside = set(os.listdir(work)) if os.path.isdir(work) else set()
    return set(os.listdir(out)) <= {f"{MARK}.tmp", WORK} and inside <= {LOCK}


@contextmanager
def lock(out: str) -> Iterator[None]:
    """Let one program at a time list the samples, or write the result; others wait."""
    work = os.path.join(out, WORK)
    os.makedirs(work, exist_ok=True)
    with open(os.path.join(work, LOCK), "w", encoding="utf-8", opener=durable.regular) as file:
        try:
            durable.lock(file)
        except BlockingIOError:
            print(f"waiting for another program that lists or completes {out} ...", flush=True)
            durable.lock(file, wait=True)
        yield


def write_file(path: str, content: str | bytes) -> None:
    """Write a file completely or not at all, even at a power failure."""
    content = content if isinstance(content, bytes) else content.encode(errors="surrogateescape")
    durable.replace(path, content, f"{path}.tmp")


def work_path(out: str, number: int, suffix: str) -> str:
    """Return the path of a working file of a chunk: `samples.jsonl`, `done.jsonl` or `rec`."""
    return os.path.join(out, WORK, f"{number:05d}.{suffix}")


def make_plan(out: str, job: Job, found: Listing) -> Plan:
    """Look for the files, write the samples of every chunk and, at last, the plan."""
    samples = list(found.samples)
    if found.media == "face" and job.form == "pack":
        samples.sort(key=lambda sample: sample.label)  # the format needs the images of an identity together
    sizes = list[int | None]()
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        for start in range(0, len(samples), STAT_BLOCK):  # of each sample, a pool keeps a kilobyte
            sizes += pool.map(partial(_size, job.root), samples[start : start + STAT_BLOCK])
    missing = tuple(_missing(job.root, sample) for sample, size in zip(samples, sizes) if size is None)
    existing = [sample._replace(size=size) for sample, size in zip(samples, sizes) if size is not None]
    chunks, newest = list[Chunk](), dict[str, Chunk]()  # the latter by split
    for group in _group(existing, MAX_CHUNK_FILES.get(job.form, MAX_ENCODED_FILES)):
        split = group[0].split
        last = newest.get(split, Chunk(-1, split, -1, 0, 0))
        lines = "".join(json.dumps(sample) + "\n" for sample in group)
        write_file(work_path(out, len(chunks), "samples.jsonl"), lines)
        newest[split] = Chunk(len(chunks), split, last.shard + 1, last.first + last.items, len(group))
        chunks.append(newest[split])
    plan = Plan(found.media, found.classes, found.pattern, missing, tuple(chunks), found.held_out)
    write_file(os.path.join(out, WORK, PLAN), json.dumps(asdict(plan)))
    return plan


def load_plan(out: str) -> Plan | None:
    """Read the plan of an interrupted preparation, None if it had not come so far."""
    try:
        with open(os.path.join(out, WORK, PLAN), encoding="utf-8") as file:
            stored = json.load(file)
    except FileNotFoundError:
        return None
    missing = tuple(Sample(*entry) for entry in stored.pop("missing"))
    chunks = tuple(Chunk(**chunk) for chunk in stored.pop("chunks"))
    lists = {key: tuple(stored[key]) for key in ("classes", "pattern")}
    return Plan(stored["media"], missing=missing, chunks=chunks, held_out=stored.get("held_out", ""), **lists)


def read_samples(out: str, number: int) -> list[Sample]:
    with open(work_path(out, number, "samples.jsonl"), encoding="utf-8") as file:
        return [Sample(*json.loads(line)) for line in file]


def _size(root: str, sample: Sample) -> int | None:
    """Return the bytes of the files of a sample, roughly those of a folder of frames; None if one does not exist."""
    if sample.key >= 0:
        return sample.size
    try:
        if sample.frames >= 0:
            return sample.frames * FRAME_BYTES if sources.exists(os.path.join(root, sample.path)) else None
        return sum(sources.status(os.path.join(root, path)).size for path in (sample.path, sample.mask) if path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # that of the one who reads it is told
        return 0


def _missing(root: str, sample: Sample) -> Sample:
    """Return a sample with the path that does not exist: its own, or that of its mask."""
    is_there = bool(sample.mask) and sources.exists(os.path.join(root, sample.path))
    return sample._replace(path=sample.mask, mask="") if is_there else sample


def _group(samples: list[Sample], max_files: int) -> Iterator[list[Sample]]:
    """Cut the samples where the split changes or a chunk is full."""
    limit = min(MAX_CHUNK, max(MIN_CHUNK, sum(sample.size for sample in samples) // CHUNKS))
    group: list[Sample] = []
    size = 0
    for sample in samples:
        if group and (sample.split != group[0].split or size >= limit or len(group) >= max_files):
            yield group
            group, size = [], 0
        group.append(sample)
        size += sample.size
    if group:
        yield group
