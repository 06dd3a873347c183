"""The work on one sample: read and check its files, and make the records that are packed."""

import hashlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.data.errors import BadSample
from zoo.data.formats import images, masks
from zoo.data.formats.recordio import RecordFile, unpack_image
from zoo.data.packs import encoding, inspection, records
from zoo.data.preparing.job import Job
from zoo.data.preparing.listing import Item

BLOCK = 1 << 20


class FileTrouble(Exception):
    """A file that vanished, changed or cannot be read since it was listed: nothing wrong with the sample itself."""


class Examined(NamedTuple):
    """Properties of a sample, and what is packed of it."""

    properties: dict[str, Any]
    records: list[bytes]


def examine(job: Job, media: str, item: Item, number: int) -> Examined:
    """Check a sample.

    Args:
        number: Of the sample within its split, which becomes the id in the headers of its records.

    Raises:
        BadSample: It cannot be decoded.
        FileTrouble: A file is not as it was listed.
    """
    if item.problem:
        raise BadSample(item.problem)
    examiners: dict[str, Callable[[Job, Item, int], Examined]] = {
        "video": _video,
        "image": _image,
        "frames": _frames,
        "pair": _pair,
        "face": _face,
    }
    paths = [os.path.join(job.root, path) for path in item.sample.files]
    try:
        _check_unchanged(paths, item)
        examined = examiners[media](job, item, number)
        _check_unchanged(paths, item)
    except OSError as error:
        vanished = isinstance(error, FileNotFoundError)
        raise FileTrouble(
            "vanished since it was listed" if vanished else f"cannot be read ({error.strerror})"
        ) from None
    except BadSample:
        _check_unchanged(paths, item)  # a file that is being written looks damaged
        raise
    return examined


def _check_unchanged(paths: list[str], item: Item) -> None:
    try:
        statuses = [os.stat(path) for path in paths]
    except OSError as error:
        raise FileTrouble(f"vanished since it was listed ({error.strerror})") from None
    size = sum(status.st_size for status in statuses)
    if size != item.size:
        raise FileTrouble(f"changed since it was listed (from {item.size} to {size} bytes)")
    if max(status.st_mtime_ns for status in statuses) != item.modified:
        raise FileTrouble("changed since it was listed")


def _video(job: Job, item: Item, number: int) -> Examined:
    path = os.path.join(job.root, item.sample.path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    video = inspection.video_properties(path, job.full)
    properties = {
        "codec": video.codec,
        "size": [video.width, video.height],
        "frames": video.frames,
        "rate": video.rate,
        "sha256": digest.hexdigest(),
    }
    if job.form == "files":
        return Examined(properties, [])
    if job.form == "pack":
        return Examined(properties, [_record(item.sample.label, number, _read(path))])
    if job.form == "reencode":
        clip = encoding.h264_clip(path, video.rate, job.short_side, job.crf, job.gop)
    else:
        clip = encoding.jpeg_clip(path, job.short_side, job.quality)
    if clip.frames != video.frames:
        raise BadSample(f"it holds {video.frames} frames, but {clip.frames} can be decoded")
    properties |= {"size": [clip.width, clip.height], "psnr": round(clip.psnr, 3)}
    return Examined(properties, [_record(item.sample.label, number, part) for part in clip.parts])


def _frames(job: Job, item: Item, number: int) -> Examined:
    names = item.sample.files
    digest, sizes, codec, parts = hashlib.sha256(), set(), "", []
    for name in names:
        content = _read(os.path.join(job.root, name))
        try:
            codec = inspection.image_properties(content).codec
            sizes.add(images.parse(content).size)
        except BadSample as error:
            raise BadSample(f"{os.path.basename(name)}: {error}") from None
        digest.update(content)
        if job.form == "pack":
            parts.append(_record(item.sample.label, number, content))
    if len(sizes) > 1:
        raise BadSample("its images differ in size")
    properties = {"codec": codec, "size": sizes.pop(), "frames": len(names), "sha256": digest.hexdigest()}
    return Examined(properties, parts)


def _image(job: Job, item: Item, number: int) -> Examined:
    content = _read(os.path.join(job.root, item.sample.path))
    properties = _image_properties(content)
    if job.form == "files":
        return Examined(properties, [])
    image = encoding.jpeg_image(content, job.short_side, job.quality) if job.form == "resize" else None
    if image:
        properties |= {"size": [image.width, image.height], "psnr": round(image.psnr, 3)}
        content = image.content
    return Examined(properties, [_record(item.sample.label, number, content)])


def _pair(job: Job, item: Item, number: int) -> Examined:
    content, mask_path = _read(os.path.join(job.root, item.sample.path)), os.path.join(job.root, item.sample.mask)
    mask = _read(mask_path)
    properties = _image_properties(content)
    try:
        labels = masks.read_labels(mask_path, masks.cityscapes_ids())
        masks.check_sizes(properties["size"], labels.shape[::-1])
    except BadSample as error:
        raise BadSample(f"{item.sample.mask}: {error}") from None
    properties["sha256"] = hashlib.sha256(content + mask).hexdigest()
    parts = [] if job.form == "files" else [_record(0, number, part) for part in (content, mask)]
    return Examined(properties, parts)


def _face(job: Job, item: Item, number: int) -> Examined:
    path, label = os.path.join(job.root, item.sample.path), item.sample.label
    if item.sample.key >= 0:
        image = unpack_image(RecordFile(path).read(item.sample.offset))
        content, label = image.encoded, int(image.labels[0])
        if not 0 <= label == image.labels[0]:
            raise BadSample(f"its label {image.labels[0]} is not the number of an identity")
    else:
        content = _read(path)
    properties = {**_image_properties(content), "label": label, "bytes": len(content)}
    return Examined(properties, [] if job.form == "files" else [_record(label, number, content)])


def _image_properties(content: bytes) -> dict[str, Any]:
    codec, width, height = inspection.image_properties(content)
    return {"codec": codec, "size": [width, height], "sha256": hashlib.sha256(content).hexdigest()}


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _record(label: int, number: int, content: bytes) -> bytes:
    return records.record(records.image_payload(label, number, content))
