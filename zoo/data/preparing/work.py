"""The work on the samples: read, check, encode and pack each of a chunk, in several processes.

A chunk is complete when the file of its entries exists, which is written last. Whatever kills a process costs the chunk
that it was at, and nothing else.
"""

import errno
import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from zoo.data import durable, host, sources
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import images, masks, recordio, regular
from zoo.data.formats.recordio import RecordFile, unpack_image
from zoo.data.preparing import encoding
from zoo.data.preparing import job as jobs
from zoo.data.preparing.job import Chunk, Job
from zoo.data.preparing.listing import Sample

POLL_INTERVAL = 0.2  # seconds
# Errors of a file system rather than of a file: the work stops, and the same command goes on when they are mended.
OF_FILE_SYSTEM = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EACCES, errno.EPERM, errno.EMFILE)
MAX_FAILED = 5  # samples in a row of an archive or address with such an error, which may be that of a sample there

Entry = dict[str, Any]


class Task(NamedTuple):
    """A chunk to work on.

    Attributes:
        pattern: Template of the names of frames, and the number of the first.
        pack: Path of its pack when it is complete, None if nothing is packed.
    """

    out: str
    job: Job
    media: str
    pattern: tuple[str, int]
    chunk: Chunk
    pack: str | None


class Examined(NamedTuple):
    """Properties of a sample, and the contents that are packed of it."""

    properties: Entry
    parts: list[bytes]


def is_done(task: Task) -> bool:
    """Return whether a chunk is complete."""
    return os.path.exists(jobs.work_path(task.out, task.chunk.number, "done.jsonl"))


def read_entries(out: str, number: int) -> list[Entry]:
    """Read the entries of a complete chunk, one per sample: its properties, or under `bad` why it cannot be read."""
    with open(jobs.work_path(out, number, "done.jsonl"), "rb") as file:
        return [json.loads(line) for line in file]


def run(tasks: Sequence[Task], workers: int, show: Callable[[int], None]) -> None:
    """Work on those chunks that no other program takes, in several processes. Raises OSError.

    Args:
        show: Called now and then with the number of samples done.
    """
    context = multiprocessing.get_context("spawn")
    done = context.RawArray("q", max(task.chunk.number for task in tasks) + 1)  # samples, by chunk
    stop = context.Event()
    with ProcessPoolExecutor(workers, context, _begin, (done, stop, os.getpid())) as pool:
        futures: set[Future] = {pool.submit(_work, task) for task in tasks}
        # A pool looks for new processes to watch before a submit starts one: the last one needs another submit.
        pool.submit(os.getpid)
        try:
            while futures:
                ready, futures = wait(futures, POLL_INTERVAL, FIRST_COMPLETED)
                show(sum(done))
                for future in ready:
                    future.result()
        except BrokenProcessPool:
            begun = [task for task in tasks if done[task.chunk.number] and not is_done(task)]
            samples = [jobs.read_samples(task.out, task.chunk.number)[done[task.chunk.number] - 1] for task in begun]
            names = "".join(f"\n  {sample.name}" for sample in samples)
            raise UserError(
                "a process was killed, perhaps for want of memory; run the same command again, with fewer --workers. "
                f"If that does not help, one of these files crashes a decoder; remove it:{names}"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


_done: Any = None  # of this process, set by _begin
_stop: Any = None


def _begin(done: Any, stop: Any, parent: int) -> None:
    """Ignore Ctrl-C, which the parent process handles, and exit when that is gone."""
    global _done, _stop
    _done, _stop = done, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host.end_with_parent(parent)


def _work(task: Task) -> None:
    def begin(position: int) -> bool:
        _done[task.chunk.number] = position + 1
        return not _stop.is_set()

    with taken(task) as is_ours:
        if is_ours and not is_done(task):
            work_on(task, begin)


@contextmanager
def taken(task: Task) -> Iterator[bool]:
    """Take a chunk, unless a program has it, of this machine or of another one that writes to the same folder."""
    with open(jobs.work_path(task.out, task.chunk.number, "lock"), "w", opener=durable.regular) as file:
        try:
            durable.lock(file)
        except BlockingIOError:
            yield False
            return
        yield True


def is_free(task: Task) -> bool:
    with taken(task) as is_ours:
        return is_ours


def work_on(task: Task, begin: Callable[[int], bool]) -> None:
    """Work on a chunk. Raises OSError.

    Args:
        begin: Called with the position of each sample before the work on it; ends the work if it returns false.
    """
    number, entries, end, failed = task.chunk.number, list[Entry](), 0, 0
    part = jobs.work_path(task.out, number, "rec")
    with open(part, "wb", opener=durable.fresh) if task.pack else nullcontext() as pack:
        for position, sample in enumerate(jobs.read_samples(task.out, number)):
            if not begin(position):
                return
            try:
                examined = examine(task, sample)
                payloads = [
                    recordio.image_payload(examined.properties["label"], task.chunk.first + position, content)
                    for content in examined.parts
                ]
                packed = [recordio.record(payload) for payload in payloads] if task.pack else []
            except BadSample as error:
                entries.append({"bad": str(error)})
                failed = failed + 1 if getattr(error.__cause__, "errno", None) in OF_FILE_SYSTEM else 0
                if failed == MAX_FAILED:
                    raise _stopped(f"{sample.name} and {failed - 1} before it", str(error)) from None
                continue
            failed = 0
            entries.append({**examined.properties, "at": []})
            for record in packed:
                entries[-1]["at"].append(end)
                end += len(record)
                assert pack
                pack.write(record)
        if pack:
            pack.flush()
            os.fsync(pack.fileno())
    if task.pack:
        offsets = [offset for entry in entries for offset in entry.get("at", ())]
        jobs.write_file(f"{os.path.splitext(task.pack)[0]}.idx", recordio.index_lines(range(len(offsets)), offsets))
        os.rename(part, task.pack)
        durable.sync_folder(os.path.dirname(task.pack))
    lines = [json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries]
    jobs.write_file(jobs.work_path(task.out, number, "done.jsonl"), "".join(lines))


def examine(task: Task, sample: Sample) -> Examined:
    """Check a sample. Raises BadSample."""
    examiners = {"video": _video, "image": _image, "frames": _frames, "pair": _pair, "face": _face}
    try:
        return examiners[task.media](task, sample)
    except OSError as error:
        if error.errno in OF_FILE_SYSTEM and not sources.locate(os.path.join(task.job.root, sample.path)):
            raise _stopped(error.filename or sample.name, f"cannot be read ({error.strerror})") from None
        raise BadSample(f"cannot be read ({error.strerror})") from error


def _stopped(what: str, problem: str) -> UserError:
    return UserError(f"{what}: {problem}; mend or remove it and run the same command again: it goes on from here")


def _video(task: Task, sample: Sample) -> Examined:
    with sources.local_path(os.path.join(task.job.root, sample.path)) as path:
        return _video_file(task.job, path, sample)


def _video_file(job: Job, path: str, sample: Sample) -> Examined:
    with regular.open_file(path, limit=None) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    video = encoding.video_properties(path, job.full)
    size, properties = (video.width, video.height), {"codec": video.codec, "frames": video.frames, "rate": video.rate}
    properties |= {"label": sample.label, "bytes": os.path.getsize(path), "sha256": digest}
    if job.form in ("files", "pack"):
        return Examined(properties | {"size": size}, [regular.read(path)] if job.form == "pack" else [])
    if job.form == "reencode":
        clip = encoding.h264_clip(path, video.rate, job.short_side, job.crf, job.gop)
    else:
        clip = encoding.jpeg_clip(path, job.short_side, job.quality)
    if clip.frames != video.frames:
        raise BadSample(f"it holds {video.frames} frames, but {clip.frames} can be decoded")
    return Examined(properties | {"size": (clip.width, clip.height)}, clip.parts)


def _frames(task: Task, sample: Sample) -> Examined:
    if not sample.frames:
        raise BadSample("the list says that it has no frames")
    template, first = task.pattern
    digest = hashlib.sha256()
    sizes = set()
    codec = ""
    parts = []
    for number in range(first, first + sample.frames):
        name = template.format(number)
        try:
            content = regular.read(os.path.join(task.job.root, sample.path, name))
            codec = encoding.image_properties(content).codec
            sizes.add(images.parse(content).size)
        except FileNotFoundError:
            raise BadSample(f"{name} is missing, the list says {sample.frames} frames") from None
        except BadSample as error:
            raise BadSample(f"{name}: {error}") from None
        digest.update(content)
        parts += [content] if task.job.form == "pack" else []
    if len(sizes) > 1:
        raise BadSample("its images differ in size")
    properties = {"codec": codec, "size": sizes.pop(), "frames": sample.frames, "sha256": digest.hexdigest()}
    return Examined({"label": sample.label, "bytes": sample.size, **properties}, parts)


def _image(task: Task, sample: Sample) -> Examined:
    content, job = regular.read(os.path.join(task.job.root, sample.path)), task.job
    properties = _properties(content, sample.label)
    image = encoding.jpeg_image(content, job.short_side, job.quality) if job.form == "resize" else None
    if image:
        content, *properties["size"] = image
    return Examined(properties, [content])


def _pair(task: Task, sample: Sample) -> Examined:
    path, mask_path = (os.path.join(task.job.root, name) for name in (sample.path, sample.mask))
    content, mask = regular.read(path), regular.read(mask_path)
    properties = _properties(content, sample.label)
    try:
        labels = masks.read_labels(mask_path, masks.cityscapes_ids())
        masks.check_sizes(properties["size"], labels.shape[::-1])
    except BadSample as error:
        raise BadSample(f"{sample.mask}: {error}") from None
    both = {"bytes": len(content) + len(mask), "sha256": hashlib.sha256(content + mask).hexdigest()}
    if task.job.form == "raw":
        content = images.raw_file(images.decode_stored(images.parse(content)))
        mask = images.raw_file(masks.read_values(mask_path))
    return Examined(properties | both, [content, mask])


def _face(task: Task, sample: Sample) -> Examined:
    path = os.path.join(task.job.root, sample.path)
    if sample.key < 0:
        content = regular.read(path)
        return Examined(_properties(content, sample.label), [content])
    image = unpack_image(RecordFile(path).read(sample.offset))
    label = image.labels[0]
    if not 0 <= label == int(label):
        raise BadSample(f"its label {label} is not the number of an identity")
    return Examined(_properties(image.encoded, int(label)), [image.encoded])


def _properties(content: bytes, label: int) -> Entry:
    codec, width, height = encoding.image_properties(content)
    digest = hashlib.sha256(content).hexdigest()
    return {"label": label, "bytes": len(content), "codec": codec, "size": (width, height), "sha256": digest}
