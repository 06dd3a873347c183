"""Manifest of a prepared data set: every readable sample with its label and properties, in one safetensors file.

A manifest of 240,000 clips is read in a fraction of a second and needs no question to the file system. Samples of a
split are consecutive, in the order of the loader of the unprepared data set.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from zoo.data import sources
from zoo.data.errors import parsing
from zoo.data.formats import regular
from zoo.data.formats.lists import FRAME_TEMPLATE

NAME = "manifest.safetensors"
VERSION = 1
MAX_QUOTED = 60  # characters of a damaged text in a message
METADATA_KEY = "manifest"  # a single one: safetensors writes several in a random order
COLUMNS = {  # name -> dtype, shape of one sample
    "label": ("int64", ()),  # -1 without classes
    "bytes": ("int64", ()),  # of the source files
    "sha256": ("uint8", (32,)),  # of the source files, one after the other
    "size": ("int32", (2,)),  # width and height of the images that are read; of videos upright
    "codec": ("int32", ()),  # of the source, by its place in Info.codecs
    "frames": ("int32", ()),  # of a video, 1 for an image
    "rate": ("int32", (2,)),  # frames per second as numerator and denominator, (0, 1) if unknown
    "shard": ("int32", ()),  # number of the pack in Info.shards, -1 without one
    "first_record": ("int64", ()),  # of its records in `record`
    "records": ("int32", ()),
}
MEDIA = {  # what the samples of a source are -> how messages call them; a manifest calls frames a video
    "video": "clips",
    "frames": "folders of frames",
    "image": "images",
    "pair": "images with masks",
    "face": "faces",
}
TEXTS = ("path_text", "path_end", "mask_text", "mask_end")


@dataclass(frozen=True)
class Info:
    """Description of a prepared data set as a whole.

    Attributes:
        media: `video`, `image`, `pair` (image and mask) or `face`.
        form: `files` (the files of `root` are read), `pack` (the same files in packs), `reencode` (H.264 in packs),
            `frames` (the files of single frames in packs), `folders` (the folders of frames in `root` are read) or
            `resize` (smaller JPEG files in packs).
        root: Folder of the source, absolute.
        splits: Name -> first sample and the one after the last.
        frame_template: Format string of the files of a source that holds folders of frames; else empty.
        first_frame: Number of the first of these files.
        held_out: Part of the protocol id of a validation split that was held out of the training samples; else empty.
    """

    kind: str
    media: str
    form: str
    root: str
    classes: tuple[str, ...]
    splits: dict[str, tuple[int, int]]
    codecs: tuple[str, ...]
    shards: tuple[str, ...]
    terms: str
    frame_template: str = ""
    first_frame: int = 0
    held_out: str = ""


@dataclass(frozen=True)
class Manifest:
    """Contents of a manifest.

    Attributes:
        columns: Arrays by name, as in COLUMNS, one row per sample.
        paths: Encoded paths of the source files, relative to the root.
        masks: Encoded paths of the masks; empty without masks.
        record: int64 (n,), byte offset of every record in its pack, those of a sample together. A manifest that was
            read supports slices only, which are read from the file: a large set of frames has 70 million records.
    """

    info: Info
    columns: dict[str, np.ndarray]
    paths: list[bytes]
    masks: list[bytes] = field(default_factory=list)
    record: Any = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.paths)


def is_prepared(folder: str) -> bool:
    return sources.is_file(os.path.join(folder, NAME))


def encode(manifest: Manifest) -> bytes:
    """Return the content of the file; equal manifests give equal bytes."""
    tensors = {name: np.ascontiguousarray(manifest.columns[name], dtype) for name, (dtype, _) in COLUMNS.items()}
    tensors["record"] = manifest.record
    for name, paths in (("path", manifest.paths), ("mask", manifest.masks)):
        tensors[f"{name}_text"] = np.frombuffer(b"".join(paths), np.uint8)
        tensors[f"{name}_end"] = np.cumsum([len(path) for path in paths], dtype=np.int64)
    metadata = {"version": VERSION, **asdict(manifest.info)}
    return save(tensors, {METADATA_KEY: json.dumps(metadata, sort_keys=True)})


def read(folder: str) -> Manifest:
    """Read and check the manifest of a prepared data set."""
    path = os.path.join(folder, NAME)
    again = "prepare the data set again, into a new folder"
    with parsing(f"{path}: cannot be read", again), sources.local_path(path) as readable:
        file = safe_open(readable, "numpy")
        metadata = regular.parse_json((file.metadata() or {})[METADATA_KEY])
        if metadata.pop("version") != VERSION:
            raise ValueError("it was written by another version of zoo data prepare")
        tensors = {name: file.get_tensor(name) for name in (*COLUMNS, *TEXTS)}
        return _parse(metadata, tensors, file.get_slice("record"))


def _parse(metadata: dict[str, Any], tensors: dict[str, np.ndarray], record: Any) -> Manifest:
    splits = {name: (int(first), int(end)) for name, (first, end) in metadata.pop("splits").items()}
    metadata |= {name: tuple(metadata[name]) for name in ("classes", "codecs", "shards")}
    info = Info(**metadata, splits=splits)
    _check_info(info)
    paths = _split_text(tensors["path_text"], tensors["path_end"])
    masks = _split_text(tensors["mask_text"], tensors["mask_end"])
    columns = {name: tensors[name] for name in COLUMNS}
    for name, (dtype, shape) in COLUMNS.items():
        if columns[name].dtype != dtype or columns[name].shape != (len(paths), *shape):
            raise ValueError(f"{name} is {columns[name].dtype} {columns[name].shape} for {len(paths)} samples")
    first, count, shard = columns["first_record"], columns["records"], columns["shard"]
    needed = columns["frames"] if info.form == "frames" else 2 if info.media == "pair" else 1
    for wrong, problem in (
        (record.get_dtype() != "I64" or len(record.get_shape()) != 1, "record is not a list of offsets"),
        (len(masks) not in (0, len(paths)), f"{len(masks)} masks for {len(paths)} samples"),
        (
            np.any(first < 0) or np.any(count < 0) or np.any(first > record.get_shape()[0] - count),
            "records lie outside",
        ),
        (np.any(shard < -1) or np.any(shard >= len(info.shards)), "a sample lies in an unknown pack"),
        (len(np.unique(shard < 0)) > 1, "some samples lie in packs, others do not"),
        (np.any(columns["frames"] < 0), "a number of frames is negative"),
        (np.any((count < needed) & (shard >= 0)), "a sample lacks records"),
        (any(not 0 <= begin <= end <= len(paths) for begin, end in splits.values()), "a split lies outside"),
        (any(os.path.basename(name) != name for name in info.shards), "a pack lies in another folder"),
    ):
        if wrong:
            raise ValueError(problem)
    return Manifest(info, columns, paths, masks, record)


def _check_info(info: Info) -> None:
    """Raise ValueError for values of other types than written. Format strings may ask for names of any length."""
    texts = (info.kind, info.media, info.form, info.root, info.terms, info.frame_template, info.held_out)
    lists = (info.classes, info.codecs, info.shards, info.splits)
    if not all(isinstance(text, str) for text in (*texts, *chain(*lists))) or type(info.first_frame) is not int:
        raise ValueError("its description is damaged")
    if info.frame_template and not FRAME_TEMPLATE.fullmatch(info.frame_template):
        raise ValueError(f"the name of its frames is {info.frame_template[:MAX_QUOTED]!r}")


def _split_text(text: np.ndarray, ends: np.ndarray) -> list[bytes]:
    if text.dtype != np.uint8 or ends.dtype != np.int64 or np.any(np.diff(ends, prepend=0) < 0):
        raise ValueError("its paths are damaged")
    if (int(ends[-1]) if len(ends) else 0) != len(text):
        raise ValueError("its paths are cut off")
    content, limits = text.tobytes(), [0, *ends.tolist()]
    return [content[start:end] for start, end in pairwise(limits)]
